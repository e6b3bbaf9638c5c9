#include "nn/draft_inputs.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/elementwise.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

bool has_draft(const StepRow& row) { return row.open > 0; }

array rows_of(const array& x, int from, int to) { return mx::slice(x, {from, 0}, {to, x.shape(1)}); }

}  // namespace

Linear table_sum(const Weights& w, std::string_view table, int rows, int width) {
  Linear sum{.matrix = {}, .bias = {}, .out = width, .in = rows};
  const auto stored = w.peek(std::string(table) + ".weight");
  if (!stored) return sum;  // a plan
  const mx::Dtype dtype = stored->quantized() && stored->scales->dtype() != mx::bfloat16 ? mx::float16
                          : stored->quantized()                                          ? mx::bfloat16
                                                : stored->data.dtype();
  array values = mx::contiguous(mx::swapaxes(dequantized(*stored, dtype), 0, 1));
  values.eval();
  const std::vector<Weight> one{{stored->name, {width, rows}, values, {}, {}, {}}};
  sum.matrix = kernels::Matrix::concatenated(one);
  return sum;
}

DraftInputs::DraftInputs(const Weights& w, const DraftInputOptions& options)
    : o_(options),
      expected_(table_sum(w, "embed_tokens", o_.vocab, o_.hidden)),
      norm_(w.rms_norm("self_conditioning.pre_norm", o_.hidden, o_.eps)),
      mlp_(w / "self_conditioning", o_.hidden, o_.width, o_.activation, Bias::none) {}

array DraftInputs::operator()(const array& h, const Step& step) const {
  if (std::none_of(step.rows().begin(), step.rows().end(), has_draft)) return h;
  std::vector<array> parts;
  for (const StepRow& row : step.rows()) {
    const int end = row.first + row.count, draft = end - row.open;
    if (draft > row.first) parts.push_back(rows_of(h, row.first, draft));
    if (row.open == 0) continue;
    array own = rows_of(h, draft, end);
    if (row.before && !fault("draft before ignored")) {
      const array share = mx::softmax(*row.before, std::vector<int>{-1}, /*precise=*/true);
      own = mlp_(norm_(mx::multiply(expected_(share), array(o_.scale))), own);
    }
    parts.push_back(kernels::rms_norm(own, std::nullopt, o_.eps));
  }
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
}

array by_draft(const Step& step, const array& known, const array& draft) {
  if (std::none_of(step.rows().begin(), step.rows().end(), has_draft)) return known;
  std::vector<float> open(static_cast<size_t>(step.count()), 0.0f);
  for (const StepRow& row : step.rows())
    std::fill_n(open.begin() + row.first + row.count - row.open, row.open, 1.0f);
  const array mask(open.data(), {step.count(), 1}, mx::float32);
  return mx::where(mx::greater(mask, array(0.0f)), draft, known);
}

}  // namespace mlxcel
