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

array joined(const std::vector<array>& parts) {
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
}

array rows_of(const array& x, int from, int to) { return mx::slice(x, {from, 0}, {to, x.shape(1)}); }

}  // namespace

Linear table_sum(const Weights& w, std::string_view table, int rows, int width) {
  Linear sum{.matrix = {}, .bias = {}, .out = width, .in = rows};
  const std::string name = std::string(table) + ".weight";
  if (!w.has(name)) return sum;
  const auto stored = w.peek(name);
  if (!stored) {  // a plan
    const size_t size = std::max<size_t>(mx::size_of(w.dtype(name)), 2);
    w.hold(static_cast<size_t>(rows) * static_cast<size_t>(width) * size);
    return sum;
  }
  const mx::Dtype dtype = stored->quantized() && stored->scales->dtype() != mx::bfloat16 ? mx::float16
                          : stored->quantized()                                          ? mx::bfloat16
                                                : stored->data.dtype();
  array values = mx::contiguous(mx::swapaxes(dequantized(*stored, dtype), 0, 1));
  values.eval();
  const std::vector<Weight> one{{stored->name, {width, rows}, values, {}, {}, {}}};
  sum.matrix = kernels::Matrix::concatenated(one);
  w.hold(sum.matrix.bytes());
  return sum;
}

DraftInputs::DraftInputs(const Weights& w, const DraftInputOptions& options)
    : o_(options),
      expected_(table_sum(w, "embed_tokens", o_.vocab, o_.hidden)),
      norm_(w.rms_norm("self_conditioning.pre_norm", o_.hidden, o_.eps)),
      mlp_(w / "self_conditioning", o_.hidden, o_.width, o_.activation, Bias::none) {}

array DraftInputs::operator()(const array& h, const Step& step) const {
  if (std::none_of(step.rows().begin(), step.rows().end(), has_draft)) return h;
  // The drafts that know an earlier round's expectations go through the MLP together: what adapters add there
  // is told by the tokens of all of them.
  std::vector<array> shares, told;
  if (!fault("draft before ignored"))
    for (const StepRow& row : step.rows()) {
      if (!row.before) continue;
      shares.push_back(mx::softmax(*row.before, std::vector<int>{-1}, /*precise=*/true));
      told.push_back(rows_of(h, row.first + row.count - row.open, row.first + row.count));
    }
  std::optional<array> seen;
  if (!told.empty())
    seen = mlp_(norm_(mx::multiply(expected_(joined(shares)), array(o_.scale))), joined(told));
  std::vector<array> parts;
  int at = 0;  // in `seen`
  for (const StepRow& row : step.rows()) {
    const int end = row.first + row.count, draft = end - row.open;
    if (draft > row.first) parts.push_back(rows_of(h, row.first, draft));
    if (row.open == 0) continue;
    const bool knows = seen && row.before;
    const array own = knows ? rows_of(*seen, at, at + row.open) : rows_of(h, draft, end);
    if (knows) at += row.open;
    parts.push_back(kernels::rms_norm(own, std::nullopt, o_.eps));
  }
  return joined(parts);
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
