#include "engine/loop/verify_check.h"

#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "state/step.h"

namespace mlxcel {
namespace {

constexpr int kInputs = 3;
constexpr double kLeast = -10.0;  // log-probabilities below are not compared

std::vector<float> logits_of(Model& model, RowState& row, std::span<const int32_t> tokens, Wants wants) {
  Step step;
  step.add(&row, tokens, wants);
  step.seal();
  const array result = mx::contiguous(mx::astype(model.logits(step), mx::float32));
  std::vector<array> outputs = step.pending();
  outputs.push_back(result);
  mx::eval(std::move(outputs));
  step.commit();
  return {result.data<float>(), result.data<float>() + result.size()};
}

double log_sum(const float* logits, size_t count) {
  const double top = *std::max_element(logits, logits + count);
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - top);
  return top + std::log(sum);
}

double difference(const std::vector<float>& a, const std::vector<float>& b, size_t vocab) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0.0;
  for (size_t row = 0; row + vocab <= a.size(); row += vocab) {
    const double x = log_sum(a.data() + row, vocab), y = log_sum(b.data() + row, vocab);
    for (size_t i = row; i < row + vocab; ++i) {
      const double want = a[i] - x;
      if (want < kLeast) continue;
      const double off = std::abs(want - (b[i] - y));
      if (!std::isfinite(off)) return std::numeric_limits<double>::infinity();
      worst = std::max(worst, off);
    }
  }
  return worst;
}

double tolerance(mx::Dtype dtype) { return dtype == mx::float32 ? 1e-4 : dtype == mx::float16 ? 0.02 : 0.1; }

}  // namespace

const char* to_string(VerifyCheck::Verdict verdict) {
  switch (verdict) {
    case VerifyCheck::Verdict::exact:
      return "exact";
    case VerifyCheck::Verdict::within_tolerance:
      return "within tolerance";
    case VerifyCheck::Verdict::declined:
      return "declined";
  }
  return "";
}

VerifyCheck check_verify(Model& model, StateStore& store, int block, int prompt) {
  VerifyCheck check;
  const auto vocab = static_cast<size_t>(model.info().vocab_size);
  const int ids = std::max(1, model.info().vocab_size - 8);  // the last are placeholders in many vocabularies
  for (int input = 0; input < kInputs; ++input) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < prompt + block; ++i)
      tokens.push_back(
          static_cast<int32_t>((static_cast<int64_t>(i + 1) * 7919 + input * 104729 + i * i * 31) % ids));
    const auto all = std::span<const int32_t>(tokens);
    const auto begin = [&] {
      RowState row = store.make_row(prompt);
      logits_of(model, row, all.first(static_cast<size_t>(prompt)), Wants::last);
      return row;
    };
    RowState one = begin(), many = begin();
    std::vector<float> single;
    for (int i = prompt; i < prompt + block; ++i) {
      const auto logits = logits_of(model, one, all.subspan(static_cast<size_t>(i), 1), Wants::last);
      single.insert(single.end(), logits.begin(), logits.end());
    }
    const auto together = logits_of(model, many, all.last(static_cast<size_t>(block)), Wants::all);
    if (together != single && check.verdict == VerifyCheck::Verdict::exact)
      check.verdict = VerifyCheck::Verdict::within_tolerance;
    check.largest = std::max(check.largest, difference(single, together, vocab));
  }
  if (check.largest > tolerance(store.kv_dtype())) check.verdict = VerifyCheck::Verdict::declined;
  return check;
}

}  // namespace mlxcel
