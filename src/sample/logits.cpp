#include "sample/logits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace mlxcel::logits {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kBlock = 2048;      // a block's peak is remembered, then searched for once
constexpr size_t kSumBlock = 512;    // floats summed in f32 lanes before they go to f64
constexpr size_t kSkipBlock = 64;    // entries ruled out by one comparison in select_top
constexpr int kHeapLimit = 2048;     // above it, selection over all entries beats the heap
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// e^x for x <= 0: 2^n times a polynomial on [-ln2/2, ln2/2] (Cephes' expf coefficients).
inline float exp_negative(float x) {
  const float clipped = x > -87.0f ? x : -87.0f;
  const float shifted = clipped * 1.44269504f + 12582912.0f;  // rounds to the nearest integer in the low bits
  const float n = shifted - 12582912.0f;
  const float r = clipped - n * 0.693359375f - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) - 0x4B400000u + 127u) << 23;
  return x > -87.0f ? p * std::bit_cast<float>(power) : 0.0f;
}

inline float lane_max(const float* x, size_t count) {  // count a multiple of kLanes
  std::array<float, kLanes> top;
  top.fill(kLowest);
  for (size_t i = 0; i < count; i += kLanes)
    for (size_t l = 0; l < kLanes; ++l) top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
  return *std::max_element(top.begin(), top.end());
}

bool better(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
}

}  // namespace

Peak peak(std::span<const float> row) {
  float best = kLowest;
  size_t best_at = 0;
  std::array<float, kLanes> check{};  // v - v is 0, or NaN for what is not finite
  for (size_t at = 0; at < row.size(); at += kBlock) {
    const size_t count = std::min(kBlock, row.size() - at);
    const float* x = row.data() + at;
    std::array<float, kLanes> top;
    top.fill(kLowest);
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (size_t l = 0; l < kLanes; ++l) {
        top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
        check[l] += x[i + l] - x[i + l];
      }
    for (; i < count; ++i) {
      top[0] = x[i] > top[0] ? x[i] : top[0];
      check[0] += x[i] - x[i];
    }
    const float block = *std::max_element(top.begin(), top.end());
    if (block > best) best = block, best_at = at;
  }
  float sum = 0.0f;
  for (float v : check) sum += v;
  const auto begin = row.begin() + static_cast<std::ptrdiff_t>(best_at);
  const auto found = std::find(begin, row.end(), best);
  return {.value = best,
          .token = found == row.end() ? 0 : static_cast<int32_t>(found - row.begin()),
          .finite = sum == 0.0f && best > kLowest};
}

float weight(float x, float highest, float scale) { return exp_negative((x - highest) * scale); }

double sum_weights(std::span<const float> row, float highest, float scale) {
  double total = 0.0;
  for (size_t at = 0; at < row.size(); at += kSumBlock) {
    const size_t count = std::min(kSumBlock, row.size() - at);
    const float* x = row.data() + at;
    std::array<float, kLanes> sums{};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (size_t l = 0; l < kLanes; ++l) sums[l] += exp_negative((x[i + l] - highest) * scale);
    for (; i < count; ++i) sums[0] += exp_negative((x[i] - highest) * scale);
    double block = 0.0;
    for (float v : sums) block += static_cast<double>(v);
    total += block;
  }
  return total;
}

void select_top(std::span<const float> row, int count, std::vector<TokenLogprob>& out) {
  out.clear();
  const size_t wanted = std::min(row.size(), static_cast<size_t>(std::max(count, 0)));
  if (wanted == 0) return;
  if (wanted > static_cast<size_t>(kHeapLimit)) {
    out.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) out[i] = {static_cast<int32_t>(i), row[i]};
    if (wanted < out.size())
      std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(wanted), out.end(), better);
    out.resize(wanted);
    std::sort(out.begin(), out.end(), better);
    return;
  }
  // A heap with the worst kept entry in front; blocks without anything better are passed over.
  out.reserve(wanted + 1);
  for (size_t at = 0; at < row.size(); at += kSkipBlock) {
    const size_t count_here = std::min(kSkipBlock, row.size() - at);
    const bool full = out.size() == wanted;
    if (full && count_here == kSkipBlock && !(lane_max(row.data() + at, kSkipBlock) > out.front().logprob)) continue;
    for (size_t i = at; i < at + count_here; ++i) {
      const TokenLogprob entry{static_cast<int32_t>(i), row[i]};
      if (out.size() < wanted) {
        out.push_back(entry);
        std::push_heap(out.begin(), out.end(), better);
      } else if (better(entry, out.front())) {
        std::pop_heap(out.begin(), out.end(), better);
        out.back() = entry;
        std::push_heap(out.begin(), out.end(), better);
      }
    }
  }
  std::sort_heap(out.begin(), out.end(), better);
}

}  // namespace mlxcel::logits
