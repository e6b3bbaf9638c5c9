// Hunyuan A13B: Hunyuan's attention (norms over heads behind the rotation, whose base an alpha stretches),
// softmax experts whose chosen weights sum to one beside a shared MLP. Reference: transformers
// HunYuanMoEV1ForCausalLM.
#include "models/kit.h"

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
  moe.shared = {.width = static_cast<int>(shared), .name = "shared_mlp"};
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  if (c.get("use_cla", false))
    fail(ErrorKind::unsupported, "{}: use_cla (layers that share keys and values) is not supported",
         c.where());
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const auto rope = Rope::from(c, d, {.ntk_alpha = true});
  const Bias bias = bias_if(c.get("attention_bias", false));
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int i, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope,
                                       .qk_norm = HeadNormOptions{.eps = eps, .after_rope = true},
                                       .qkv_bias = bias,
                                       .out_bias = bias}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = SparseMoe(layer / "mlp", d.hidden, experts(c, i, d.layers))};
  });
}

}  // namespace

Arch arch_hunyuan_v1_moe() {
  return {.model_types = {"hunyuan_v1_moe"},
          .gguf = {"hunyuan-moe"},
          .reference = "transformers HunYuanMoEV1ForCausalLM",
          .build = build,
          .weights = std::vector<Rule>{rename("*.query_layernorm.*", "*.q_norm.*"),
                                       rename("*.key_layernorm.*", "*.k_norm.*")} +
                     stack_experts(),
          .tiny = R"({"model_type": "hunyuan_v1_moe", "vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-5, "rope_theta": 100.0, "rope_scaling": {"type": "dynamic", "alpha": 20.0},
              "attention_bias": true, "num_experts": 6, "moe_topk": [2, 3, 2], "num_shared_expert": 1,
              "moe_intermediate_size": 64, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
