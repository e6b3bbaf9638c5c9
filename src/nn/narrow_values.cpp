#include "nn/narrow_values.h"

#include <cmath>

#include "nn/fault.h"
#include "state/attend.h"

namespace mlxcel {

NarrowValues::NarrowValues(const Weights& w, const NarrowValuesOptions& options)
    : o_(options),
      qkv_(w.fused({"q_proj", "k_proj", "v_proj"},
                   {o_.heads * o_.key_dim, o_.kv_heads * o_.key_dim, o_.kv_heads * o_.value_dim}, o_.hidden,
                   o_.bias)),
      out_(w.linear("o_proj", o_.hidden, o_.heads * o_.value_dim, Bias::none)),
      slot_(w.layout().add_kv({.kv_heads = o_.kv_heads,
                               .key_dim = o_.key_dim,
                               .value_dim = o_.value_dim,
                               .window = fault("window ignored") ? 0 : o_.window})) {
  if (o_.sinks) sinks_ = w.tensor("sinks", {o_.heads});
}

array NarrowValues::operator()(const array& x, Step& step, const Residual& residual) const {
  const int tokens = x.shape(0), q = o_.heads * o_.key_dim, k = q + o_.kv_heads * o_.key_dim;
  const array all = qkv_(x);
  const auto part = [&](int from, int to, int heads) {
    return mx::reshape(mx::slice(all, {0, from}, {tokens, to}), {tokens, heads, -1});
  };
  const array values = part(k, all.shape(1), o_.kv_heads);
  const array seen =
      attend(o_.rope(part(0, q, o_.heads), step), o_.rope(part(q, k, o_.kv_heads), step),
             fault("value scale dropped") ? values : mx::multiply(values, array(o_.value_scale)), step, slot_,
             {.scale = 1.0f / std::sqrt(static_cast<float>(o_.key_dim)),
              .softcap = 0.0f,
              .sinks = fault("sinks dropped") ? std::nullopt : sinks_});
  return out_(seen, residual);
}

}  // namespace mlxcel
