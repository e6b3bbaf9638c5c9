#include "nn/shared_attention.h"

#include "base/error.h"
#include "kernels/elementwise.h"
#include "nn/fault.h"
#include "state/attend.h"

namespace mlxcel {

namespace {

Linear projection(const Weights& w, const Dims& d, const SharedAttentionOptions& o) {
  const int q = d.heads * d.head_dim, kv = d.kv_heads * d.head_dim;
  if (!o.owner) return w.linear("q_proj", q, d.hidden, o.bias);
  if (o.key_is_value) return w.fused({"q_proj", "k_proj"}, {q, kv}, d.hidden, o.bias);
  return w.fused({"q_proj", "k_proj", "v_proj"}, {q, kv, kv}, d.hidden, o.bias);
}

int slot_of(const Weights& w, const Dims& d, const SharedAttentionOptions& o) {
  if (!o.owner) {
    if (!o.keys || o.keys->slot < 0) fail(ErrorKind::internal, "{}: no layer owns these keys", w.path());
    for (const char* unused : {"k_proj.weight", "v_proj.weight", "k_norm.weight", "v_norm.weight"})
      if (w.has(unused)) w.leave_out(unused);
    return o.keys->slot;
  }
  const int slot = w.layout().add_kv(
      {.kv_heads = d.kv_heads, .key_dim = d.head_dim, .value_dim = d.head_dim, .window = o.window});
  if (o.keys) o.keys->slot = slot;
  return slot;
}

}  // namespace

KeySharing sharing(const Config& config, const std::vector<bool>& sliding, int owners) {
  KeySharing result{.keys = std::vector<std::shared_ptr<SharedKeys>>(sliding.size())};
  for (const bool kind : {false, true}) {
    int last = -1;
    for (int i = 0; i < owners; ++i)
      if (sliding[static_cast<size_t>(i)] == kind) last = i;
    auto keys = std::make_shared<SharedKeys>();
    for (size_t i = static_cast<size_t>(owners); i < sliding.size(); ++i) {
      if (sliding[i] != kind) continue;
      if (last < 0)
        fail(ErrorKind::bad_checkpoint,
             "{}: num_kv_shared_layers: layer {} ({} attention) has no earlier layer of its "
             "kind whose keys it could read",
             config.where(), i, kind ? "sliding" : "full");
      result.keys[i] = keys;
      result.keys[static_cast<size_t>(last)] = keys;
    }
  }
  return result;
}

SharedAttention::SharedAttention(const Weights& w, const Dims& dims, const SharedAttentionOptions& options)
    : d_(dims),
      o_(options),
      in_(projection(w, dims, options)),
      out_(w.linear("o_proj", dims.hidden, dims.heads * dims.head_dim, options.bias)),
      q_norm_(w.rms_norm("q_norm", dims.head_dim, options.eps)),
      slot_(slot_of(w, dims, options)) {
  if (o_.owner) k_norm_ = w.rms_norm("k_norm", dims.head_dim, options.eps);
}

array SharedAttention::operator()(const array& x, Step& step) const {
  const array all = in_(x);
  const int tokens = x.shape(0), dim = d_.head_dim, q_width = d_.heads * dim, kv_width = d_.kv_heads * dim;
  const auto part = [&](int from, int heads) {
    return mx::reshape(mx::slice(all, {0, from}, {tokens, from + heads * dim}), {tokens, heads, dim});
  };
  const auto answer = [&](const array& k, const array& v) {
    const array raw = part(0, d_.heads);
    const array q = o_.rope(fault("qk norm left out") ? raw : q_norm_(raw), step);
    return out_(attend(q, k, v, step, slot_, {.scale = 1.0f, .softcap = 0.0f, .sinks = {}}));
  };
  // A reader writes the same keys to the same pages again, which changes nothing.
  if (!o_.owner) return answer(o_.keys->k.value(), o_.keys->v.value());
  const array key = part(q_width, d_.kv_heads);
  const array value = o_.key_is_value ? key : part(q_width + kv_width, d_.kv_heads);
  const array k = o_.rope((*k_norm_)(key), step);
  const array v = fault("value norm left out") ? value : kernels::rms_norm(value, std::nullopt, o_.eps);
  if (o_.keys) {
    o_.keys->k = k;
    o_.keys->v = v;
  }
  return answer(k, v);
}

}  // namespace mlxcel
