#include "sample/logits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace mlxcel::logits {
namespace {

// Sixteen lanes in four of the compiler's own vectors: 128 bits is what every x86-64 and ARM machine has, and
// plain arrays of lanes are kept in memory, not in registers.
using Floats = float __attribute__((vector_size(16)));
using Words = int32_t __attribute__((vector_size(16)));
constexpr size_t kWidth = 4;
constexpr size_t kGroups = 4;
constexpr size_t kLanes = kWidth * kGroups;
constexpr size_t kBlock = 2048;    // a block's peak is remembered, then searched for once
constexpr size_t kSumBlock = 512;  // floats summed in f32 lanes before they go to f64
constexpr size_t kSkipBlock = 64;  // entries ruled out by one comparison
constexpr int kHeapLimit = 2048;   // above it, selection over all entries beats the heap
constexpr float kLowest = -std::numeric_limits<float>::infinity();

Floats load(const float* x) {
  Floats v;
  std::memcpy(&v, x, sizeof v);
  return v;
}
Floats all(float x) { return Floats{x, x, x, x}; }
Floats max_of(Floats a, Floats b) { return a > b ? a : b; }
float max_of(Floats v) { return std::max(std::max(v[0], v[1]), std::max(v[2], v[3])); }

float max_of(float a, float b) { return a > b ? a : b; }
float splat_as(float, float x) { return x; }
Floats splat_as(Floats, float x) { return all(x); }
int32_t bits_of(float x) { return std::bit_cast<int32_t>(x); }
Words bits_of(Floats x) { return std::bit_cast<Words>(x); }
float of_bits(int32_t x) { return std::bit_cast<float>(x); }
Floats of_bits(Words x) { return std::bit_cast<Floats>(x); }
float where_above(float x, float floor, float value) { return x > floor ? value : 0.0f; }
Floats where_above(Floats x, Floats floor, Floats value) { return x > floor ? value : all(0.0f); }

// e^x for x <= 0: 2^n times a polynomial on [-ln2/2, ln2/2] (Cephes' expf coefficients). One body for a float
// and for a vector, so that both give the same bits.
template <class T>
inline T exp_negative(T x) {
  const auto c = [&](float v) { return splat_as(x, v); };
  const T floor = c(-87.0f);
  const T clipped = max_of(x, floor);
  const T shifted =
      clipped * c(1.44269504f) + c(12582912.0f);  // rounds to the nearest integer in the low bits
  const T n = shifted - c(12582912.0f);
  const T r = clipped - n * c(0.693359375f) - n * c(-2.12194440e-4f);
  T p = c(1.9875691500e-4f);
  p = p * r + c(1.3981999507e-3f);
  p = p * r + c(8.3334519073e-3f);
  p = p * r + c(4.1665795894e-2f);
  p = p * r + c(1.6666665459e-1f);
  p = p * r + c(5.0000001201e-1f);
  p = p * r * r + r + c(1.0f);
  const auto power = (bits_of(shifted) - (0x4B400000 - 127)) << 23;
  return where_above(x, floor, p * of_bits(power));
}

inline float lane_max(const float* x, size_t count) {  // count a multiple of kLanes
  Floats top[kGroups] = {all(kLowest), all(kLowest), all(kLowest), all(kLowest)};
  for (size_t i = 0; i < count; i += kLanes)
    for (size_t g = 0; g < kGroups; ++g) top[g] = max_of(load(x + i + g * kWidth), top[g]);
  return max_of(max_of(max_of(top[0], top[1]), max_of(top[2], top[3])));
}

bool better(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
}

}  // namespace

Peak peak(std::span<const float> row) {
  float best = kLowest;
  size_t best_at = 0;
  Floats check[kGroups] = {};  // v - v is 0, or NaN for what is not finite
  float check_tail = 0.0f;
  for (size_t at = 0; at < row.size(); at += kBlock) {
    const size_t count = std::min(kBlock, row.size() - at);
    const float* x = row.data() + at;
    Floats top[kGroups] = {all(kLowest), all(kLowest), all(kLowest), all(kLowest)};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (size_t g = 0; g < kGroups; ++g) {
        const Floats v = load(x + i + g * kWidth);
        top[g] = max_of(v, top[g]);
        check[g] += v - v;
      }
    float block = max_of(max_of(max_of(top[0], top[1]), max_of(top[2], top[3])));
    for (; i < count; ++i) {
      block = x[i] > block ? x[i] : block;
      check_tail += x[i] - x[i];
    }
    if (block > best) best = block, best_at = at;
  }
  const Floats sum = (check[0] + check[1]) + (check[2] + check[3]);
  const auto begin = row.begin() + static_cast<std::ptrdiff_t>(best_at);
  const auto found = std::find(begin, row.end(), best);
  return {.value = best,
          .token = found == row.end() ? 0 : static_cast<int32_t>(found - row.begin()),
          .finite = sum[0] + sum[1] + sum[2] + sum[3] + check_tail == 0.0f && best > kLowest};
}

float weight(float x, float highest, float scale) { return exp_negative((x - highest) * scale); }

double sum_weights(std::span<const float> row, float highest, float scale) {
  double total = 0.0;
  const Floats top = all(highest), factor = all(scale);
  for (size_t at = 0; at < row.size(); at += kSumBlock) {
    const size_t count = std::min(kSumBlock, row.size() - at);
    const float* x = row.data() + at;
    Floats sums[kGroups] = {};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (size_t g = 0; g < kGroups; ++g) sums[g] += exp_negative((load(x + i + g * kWidth) - top) * factor);
    const Floats sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float rest = 0.0f;
    for (; i < count; ++i) rest += exp_negative((x[i] - highest) * scale);
    total += static_cast<double>(sum[0]) + static_cast<double>(sum[1]) + static_cast<double>(sum[2]) +
             static_cast<double>(sum[3]) + static_cast<double>(rest);
  }
  return total;
}

void apply_mask(std::span<float> row, std::span<const uint32_t> mask) {
  for (size_t word = 0; word * 32 < row.size(); ++word) {
    const uint32_t bits = mask[word];
    if (bits == ~uint32_t{0}) continue;
    float* x = row.data() + word * 32;
    const size_t count = std::min<size_t>(32, row.size() - word * 32);
    for (size_t i = 0; i < count; ++i) x[i] = (bits >> i & 1u) != 0 ? x[i] : kLowest;
  }
}

bool any_from(std::span<const float> part, float lowest) {
  size_t i = 0;
  if (const size_t whole = part.size() / kLanes * kLanes; whole > 0) {
    if (lane_max(part.data(), whole) >= lowest) return true;
    i = whole;
  }
  for (; i < part.size(); ++i)
    if (part[i] >= lowest) return true;
  return false;
}

// Entries go to bands of equal width in logits; the band where the mass is reached is ranked, no other.
Cut nucleus(std::span<const float> row, float highest, double share, double slack) {
  constexpr int kBands = 1024;
  constexpr float kPerUnit = 16.0f;  // bands of 1/16, down to 64 below the highest; the last takes all below
  constexpr auto kLast = static_cast<float>(kBands - 1);
  const auto band_of = [&](float x) {
    const float depth = (highest - x) * kPerUnit;
    return depth < kLast ? static_cast<int32_t>(depth) : kBands - 1;
  };
  std::array<double, kBands> mass{};
  size_t i = 0;
  for (; i + kWidth <= row.size(); i += kWidth) {
    const Floats x = load(row.data() + i);
    const Floats weights = exp_negative(x - all(highest));
    const Floats depth = (all(highest) - x) * all(kPerUnit);
    const Words bands = __builtin_convertvector(depth < all(kLast) ? depth : all(kLast), Words);
    for (size_t l = 0; l < kWidth; ++l)
      mass[static_cast<size_t>(bands[l])] += static_cast<double>(weights[l]);
  }
  for (; i < row.size(); ++i)
    mass[static_cast<size_t>(band_of(row[i]))] += static_cast<double>(exp_negative(row[i] - highest));

  double total = 0.0;
  for (double m : mass) total += m;
  const double target = (share - slack) * total;
  double reached = 0.0;
  int band = 0;
  while (band + 1 < kBands && reached + mass[static_cast<size_t>(band)] < target)
    reached += mass[static_cast<size_t>(band++)];
  // Sums in another order may fall short by their last bits: then the last band with any mass holds the cut.
  while (band > 0 && mass[static_cast<size_t>(band)] == 0.0) reached -= mass[static_cast<size_t>(--band)];
  const float floor = band + 1 < kBands ? highest - static_cast<float>(band + 2) / kPerUnit : kLowest;
  std::vector<TokenLogprob> inside;
  for (size_t at = 0; at < row.size(); at += kSkipBlock) {
    const auto part = row.subspan(at, std::min(kSkipBlock, row.size() - at));
    if (!any_from(part, floor)) continue;
    for (size_t k = 0; k < part.size(); ++k)
      if (band_of(part[k]) == band) inside.push_back({static_cast<int32_t>(at + k), part[k]});
  }
  std::sort(inside.begin(), inside.end(), better);
  for (const auto& entry : inside) {
    reached += static_cast<double>(exp_negative(entry.logprob - highest));
    if (reached >= target) return {entry.logprob, entry.token};
  }
  return inside.empty() ? Cut{highest, std::numeric_limits<int32_t>::max()}
                        : Cut{inside.back().logprob, inside.back().token};
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
    if (full && count_here == kSkipBlock && !(lane_max(row.data() + at, kSkipBlock) > out.front().logprob))
      continue;
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
