#include "nn/mla.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

array numbers_below(int count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return array(ids.data(), {1, count}, mx::int32);
}

array columns(const array& x, int from, int to) {
  Shape start(x.ndim(), 0), stop = x.shape();
  start.back() = from;
  stop.back() = to;
  return mx::slice(x, start, stop);
}

/// mscale^2 of a scaled rotation: it sharpens the scores, not the rotated values.
float score_factor(const Config& config) {
  const Config parameters = config.child("rope_parameters");
  const Config block = parameters.empty() ? config.child("rope_scaling") : parameters;
  const std::string type =
      block.has("rope_type") ? block.get<std::string>("rope_type") : block.get("type", "default");
  const float all = block.get("mscale_all_dim", 0.0f);
  if (type == "default" || type.empty() || all == 0.0f || fault("mscale dropped")) return 1.0f;
  const float factor = block.get("factor", 1.0f);
  const float m = factor <= 1.0f ? 1.0f : 0.1f * all * std::log(factor) + 1.0f;
  return m * m;
}

}  // namespace

Dims mla_dims(const Config& config) {
  Dims d;
  d.vocab = config.integer("vocab_size", 1, kMaxVocab);
  d.hidden = config.integer("hidden_size", 1, kMaxWidth);
  d.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  d.heads = config.integer("num_attention_heads", 1, 4096);
  d.kv_heads = config.integer("num_key_value_heads", 1, 4096, d.heads);
  if (d.kv_heads != d.heads)
    fail(ErrorKind::bad_checkpoint,
         "{}: num_key_value_heads {}: expected num_attention_heads {}, for latent attention has no groups",
         config.where(), d.kv_heads, d.heads);
  d.head_dim = config.integer("qk_rope_head_dim", 2, 4096);
  d.max_positions = config.integer("max_position_embeddings", 0, kMaxPositions, 0);
  return d;
}

Rope MlaOptions::rotation(const Config& config, const Dims& dims, int head_dim, int rope_dim,
                          bool interleaved) {
  // Where the config names a rotated part, it is one of the whole head.
  const Config block = config.child("rope_parameters");
  Dims turned = dims;
  turned.head_dim = block.get("partial_rotary_factor", 1.0f) < 1.0f ? head_dim : rope_dim;
  return Rope::from(config, turned, {.interleaved = config.get("rope_interleave", interleaved)});
}

MlaOptions MlaOptions::from(const Config& c, const Dims& d, const Defaults& defaults) {
  MlaOptions o;
  o.hidden = d.hidden;
  o.heads = d.heads;
  o.q_rank = c.has("q_lora_rank") ? c.integer("q_lora_rank", 1, kMaxWidth) : 0;
  o.kv_rank = c.integer("kv_lora_rank", 1, 1 << 16);
  o.plain_dim = c.integer("qk_nope_head_dim", 1, 4096);
  o.rope_dim = c.integer("qk_rope_head_dim", 2, 4096);
  o.value_dim = defaults.value_dim > 0 ? c.integer("v_head_dim", 1, 4096, defaults.value_dim)
                                       : c.integer("v_head_dim", 1, 4096);
  o.rope = rotation(c, d, o.plain_dim + o.rope_dim, o.rope_dim, defaults.interleaved);
  o.scale = score_factor(c) / std::sqrt(static_cast<float>(o.plain_dim + o.rope_dim));
  o.bias = bias_if(c.get("attention_bias", false));
  return o;
}

Mla::Mla(const Weights& w, const MlaOptions& options)
    : o_(options),
      kv_norm_(w.rms_norm("kv_a_layernorm", options.kv_rank, options.eps)),
      head_ids_(numbers_below(options.heads)),
      slot_(w.layout().add_kv({.kv_heads = 1,
                               .key_dim = options.kv_rank + options.rope_dim,
                               .value_dim = 0,
                               .window = 0,
                               .chunk = 0,
                               .latent = options.kv_rank})),
      scale_(options.scale > 0.0f
                 ? options.scale
                 : 1.0f / std::sqrt(static_cast<float>(options.plain_dim + options.rope_dim))) {
  const int queries = o_.heads * (o_.plain_dim + o_.rope_dim), latent = o_.kv_rank + o_.rope_dim;
  if (o_.q_rank > 0) {
    down_ = w.fused({"q_a_proj", "kv_a_proj_with_mqa"}, {o_.q_rank, latent}, o_.hidden, o_.bias);
    q_norm_ = w.rms_norm("q_a_layernorm", o_.q_rank, o_.eps);
    q_ = w.linear("q_b_proj", queries, o_.q_rank, Bias::none);
  } else {
    down_ = w.linear("kv_a_proj_with_mqa", latent, o_.hidden, o_.bias);
    q_ = w.linear("q_proj", queries, o_.hidden, Bias::none);
  }
  embed_ = w.bank("embed_q", o_.heads, o_.kv_rank, o_.plain_dim);
  unembed_ = w.bank("unembed_out", o_.heads, o_.value_dim, o_.kv_rank);
  out_ = w.linear("o_proj", o_.hidden, o_.heads * o_.value_dim, o_.bias);
}

Mla::Latents Mla::latents(const array& x, const Step& step) const {
  const int tokens = x.shape(0), each = o_.plain_dim + o_.rope_dim;
  const array low = down_(x);
  const array kv = o_.q_rank > 0 ? columns(low, o_.q_rank, low.shape(1)) : low;
  std::optional<array> q_latent;
  if (q_norm_) q_latent = (*q_norm_)(columns(low, 0, o_.q_rank));

  array q = mx::reshape(q_(q_latent ? *q_latent : x), {tokens, o_.heads, each});
  if (o_.q_factor != 1.0f) q = mx::multiply(q, array(o_.q_factor));
  if (o_.temperature && !fault("query temperature dropped")) q = warmed(q, step, *o_.temperature);
  array latent = kv_norm_(columns(kv, 0, o_.kv_rank));
  if (o_.kv_factor != 1.0f) latent = mx::multiply(latent, array(o_.kv_factor));
  const auto turned = [&](const array& part) { return o_.rope ? (*o_.rope)(part, step) : part; };
  const array q_turned = turned(columns(q, o_.plain_dim, each));
  const array k_turned = turned(mx::reshape(columns(kv, o_.kv_rank, kv.shape(1)), {tokens, 1, o_.rope_dim}));

  const array heads = mx::broadcast_to(head_ids_, {tokens, o_.heads});
  const array absorbed = embed_.gather(columns(q, 0, o_.plain_dim), heads);
  const array wide = mx::reshape(latent, {tokens, 1, o_.kv_rank});
  return {mx::concatenate({absorbed, q_turned}, 2), mx::concatenate({wide, k_turned}, 2), q_latent};
}

array Mla::seen(const Latents& l, Step& step, const KeyChoice* chosen) const {
  return attend(l.q, l.k, std::nullopt, step, slot_,
                {.scale = fault("score scale dropped") ? 1.0f : scale_,
                 .softcap = 0.0f,
                 .sinks = {},
                 .chosen = chosen});
}

array Mla::values(const array& seen) const {
  const int tokens = seen.shape(0);
  const array heads = mx::broadcast_to(head_ids_, {tokens, o_.heads});
  const array each = unembed_.gather(mx::reshape(seen, {tokens, o_.heads, o_.kv_rank}), heads);
  return mx::reshape(each, {tokens, o_.heads * o_.value_dim});
}

array Mla::output(const array& seen, const Residual& residual) const { return out_(values(seen), residual); }

array Mla::operator()(const array& x, Step& step, const Residual& residual) const {
  return output(seen(latents(x, step), step, nullptr), residual);
}

bool Mla::phases(PhaseList& list) const {
  // latents(), seen() and output() in the program's words. Factors of queries and latents stay outside.
  if (o_.q_factor != 1.0f || o_.kv_factor != 1.0f || o_.temperature) return false;
  const auto residual = list.residual();
  const int each = o_.plain_dim + o_.rope_dim, wide = o_.kv_rank + o_.rope_dim;
  auto low = PhaseList::kNone;
  if (q_norm_) {
    if (!list.linear(down_)) return false;
    low = list.value();
    list.set_value(list.part(low, 0, o_.q_rank));
    if (!list.norm(*q_norm_)) return false;
  } else {
    low = list.aside(down_, Activation::none);
    if (low == PhaseList::kNone) return false;
  }
  if (!list.linear(q_)) return false;
  const auto q = list.value();

  const int kv = o_.q_rank;  // where latents begin
  const Norm kv_norm(kv_norm_);
  list.set_value(low);
  if (!list.columns(kv, 1, o_.kv_rank, 0.0f, &kv_norm, std::nullopt)) return false;
  const kernels::Program::TurnForm key{.width = o_.rope_dim,
                                       .from = kv + o_.kv_rank,
                                       .each = o_.rope_dim,
                                       .to_from = kv + o_.kv_rank,
                                       .to_each = o_.rope_dim};
  if (o_.rope && !list.turn(low, low, key, o_.rope)) return false;

  list.set_value(q);
  if (!list.by_heads(embed_, wide)) return false;
  const kernels::Program::TurnForm queries{.heads = o_.heads,
                                           .width = o_.rope_dim,
                                           .from = o_.plain_dim,
                                           .each = each,
                                           .to_from = o_.kv_rank,
                                           .to_each = wide};
  return list.turn(q, list.value(), queries, o_.rope) &&
         list.attend_latent(list.part(low, kv, wide), slot_, o_.heads, scale_) &&
         list.by_heads(unembed_, o_.value_dim) && list.linear(out_, residual);
}

}  // namespace mlxcel
