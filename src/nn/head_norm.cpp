#include "nn/head_norm.h"

#include <string>

#include "nn/fault.h"

namespace mlxcel {

namespace {

using Over = HeadNormOptions::Over;

Norm make_norm(const Weights& w, std::string_view name, int heads, int head_dim, const HeadNormOptions& o) {
  std::optional<array> weight;
  if (o.weighted && o.over != Over::each_head)
    weight = w.tensor(std::string(name) + ".weight", {o.over == Over::width ? heads * head_dim : head_dim});
  if (o.kind == HeadNormOptions::Kind::layer) return LayerNorm{.weight = weight, .bias = {}, .eps = o.eps};
  return RmsNorm{.weight = weight, .eps = o.eps, .offset = o.offset};
}

}  // namespace

HeadNorm::HeadNorm(const Weights& w, std::string_view name, int heads, int head_dim,
                   const HeadNormOptions& options)
    : norm_(make_norm(w, name, heads, head_dim, options)), over_(options.over) {
  if (options.weighted && over_ == Over::each_head)
    weights_ = w.tensor(std::string(name) + ".weight", {heads, head_dim});
}

array HeadNorm::operator()(const array& x) const {
  if (fault("qk norm left out")) return x;
  if (over_ == Over::width)
    return mx::reshape(norm_(mx::reshape(x, {x.shape(0), x.shape(1) * x.shape(2)})), x.shape());
  const array y = norm_(x);
  return weights_ ? mx::multiply(y, *weights_) : y;
}

bool HeadNorm::phases(PhaseList& list, int from, int heads, int head_dim) const {
  return over_ == Over::width ? list.columns(from, 1, heads * head_dim, 0.0f, &norm_, std::nullopt)
                              : list.columns(from, heads, head_dim, 0.0f, &norm_, weights_);
}

}  // namespace mlxcel
