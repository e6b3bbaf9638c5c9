#include "models/hunyuan.h"

#include <cmath>
#include <memory>

#include "models/kit.h"
#include "nn/fault.h"
#include "nn/shared_attention.h"

namespace mlxcel {

namespace {

/// A number, or one for each layer.
int per_layer(const Config& c, const char* key, int layer, int layers, int low, int high, int fallback) {
  if (!c.is_array(key)) return c.integer(key, low, high, fallback);
  const auto list = c.get<std::vector<int>>(key);
  if (static_cast<int>(list.size()) < layers)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected {} numbers, found {}", c.where(), key, layers,
         list.size());
  const int value = list[static_cast<size_t>(layer)];
  if (value < low || value > high)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected {} to {}, found {}", c.where(), key, low, high, value);
  return value;
}

MoeOptions experts(const Config& c, int layer, int layers) {
  MoeOptions moe;
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  moe.experts = per_layer(c, "num_experts", layer, layers, 1, 4096, 1);
  moe.per_token = per_layer(c, "moe_topk", layer, layers, 1, moe.experts, 1);
  moe.width = per_layer(c, "moe_intermediate_size", layer, layers, 1, kMaxWidth, width);
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.renormalize = true;
  moe.router = "gate.wg";
  moe.bank = "switch_mlp";
  const long long shared =
      static_cast<long long>(width) * per_layer(c, "num_shared_expert", layer, layers, 1, 64, 1);
  if (shared > kMaxWidth)
    fail(ErrorKind::bad_checkpoint,
         "{}: num_shared_expert times intermediate_size: expected at most {}, found {}", c.where(), kMaxWidth,
         shared);
  if (c.get("use_mixed_mlp_moe", true))
    moe.shared = {.width = static_cast<int>(shared), .name = "shared_mlp"};
  return moe;
}

struct CrossOptions {
  Rope rope;
  std::optional<float> norm_eps;  // of the norms over heads; none: there are none
  Bias bias = Bias::as_stored;
  std::shared_ptr<SharedKeys> shared;  // keys and values as projected
  bool owner = true;
};

/// Attention over keys and values that a layer before projected; each layer norms them its own way and keeps
/// them. Reads q_proj, o_proj, the norms; an owner k_proj and v_proj as well.
class CrossLayerAttention {
 public:
  CrossLayerAttention(const Weights& w, const Dims& d, const CrossOptions& options)
      : d_(d),
        o_(options),
        in_(o_.owner ? w.fused({"q_proj", "k_proj", "v_proj"},
                               {d.heads * d.head_dim, d.kv_heads * d.head_dim, d.kv_heads * d.head_dim},
                               d.hidden, o_.bias)
                     : w.linear("q_proj", d.heads * d.head_dim, d.hidden, o_.bias)),
        out_(w.linear("o_proj", d.hidden, d.heads * d.head_dim, o_.bias)),
        slot_(w.layout().add_kv({.kv_heads = d.kv_heads, .key_dim = d.head_dim, .value_dim = d.head_dim})) {
    if (!o_.norm_eps) return;
    q_norm_ = w.rms_norm("q_norm", d.head_dim, *o_.norm_eps);
    k_norm_ = w.rms_norm("k_norm", d.head_dim, *o_.norm_eps);
  }

  array operator()(const array& x, Step& step) const {
    const array all = in_(x);
    const int tokens = x.shape(0), q_width = d_.heads * d_.head_dim, kv_width = d_.kv_heads * d_.head_dim;
    const auto part = [&](int from, int heads) {
      return mx::reshape(mx::slice(all, {0, from}, {tokens, from + heads * d_.head_dim}),
                         {tokens, heads, d_.head_dim});
    };
    if (o_.owner) {
      o_.shared->k = part(q_width, d_.kv_heads);
      o_.shared->v = part(q_width + kv_width, d_.kv_heads);
    }
    array q = o_.rope(part(0, d_.heads), step), k = o_.rope(*o_.shared->k, step);
    if (q_norm_ && !fault("qk norm left out")) {
      q = (*q_norm_)(q);
      k = (*k_norm_)(k);
    }
    return out_(attend(q, k, *o_.shared->v, step, slot_,
                       {.scale = 1.0f / std::sqrt(static_cast<float>(d_.head_dim))}));
  }

 private:
  Dims d_;
  CrossOptions o_;
  Linear in_, out_;
  int slot_;
  std::optional<RmsNorm> q_norm_, k_norm_;
};

}  // namespace

Decoder hunyuan_decoder(const Config& c, const Weights& w, bool tie) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const auto rope = Rope::from(c, d, {.ntk_alpha = true});
  const Bias bias = bias_if(c.get("attention_bias", false));
  const bool normed = c.get("use_qk_norm", true);
  const int share = c.get("use_cla", false) ? c.integer("cla_share_factor", 1, kMaxLayers, 2) : 1;
  const auto shared = std::make_shared<SharedKeys>();
  const auto mixer = [&](int i, const Weights& at) {
    if (share > 1)
      return Mixer(CrossLayerAttention(at, d,
                                       {.rope = rope,
                                        .norm_eps = normed ? std::optional(eps) : std::nullopt,
                                        .bias = bias,
                                        .shared = shared,
                                        .owner = i % share == 0}));
    AttentionOptions options{.rope = rope, .qkv_bias = bias, .out_bias = bias};
    if (normed) options.qk_norm = HeadNormOptions{.eps = eps, .after_rope = true};
    return Mixer(Attention(at, d, options));
  };
  const auto ffn = [&](int i, const Weights& at) {
    const auto moe = experts(c, i, d.layers);
    if (moe.experts > 1) return Ffn(SparseMoe(at, d.hidden, moe));
    return Ffn(GatedMlp(at, d.hidden, c.integer("intermediate_size", 1, kMaxWidth), moe.activation));
  };
  return standard_decoder(w, d, norm, {.tie = tied(c, tie)}, [&](int i, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = mixer(i, layer / "self_attn"),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = ffn(i, layer / "mlp")};
  });
}

std::vector<Rule> hunyuan_rules() {
  return std::vector<Rule>{rename("*.query_layernorm.*", "*.q_norm.*"),
                           rename("*.key_layernorm.*", "*.k_norm.*"),
                           // Fused files put the second half first.
                           split("*.gate_and_up_proj.weight", {"*.up_proj.weight", "*.gate_proj.weight"})} +
         stack_experts();
}

}  // namespace mlxcel
