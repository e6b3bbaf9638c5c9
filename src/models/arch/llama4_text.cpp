// Llama 4 without experts: rotated layers see their own chunk only and norm q and k without weights; the
// others see everything and sharpen their queries by position. Reference: transformers Llama4ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

void refuse_experts(const Config& c, int layers) {
  const auto sparse = c.get<std::vector<int>>("moe_layers", {});
  const bool listed = c.has("moe_layers");
  const int step = c.integer("interleave_moe_layer_step", 0, kMaxLayers, 1);
  // mlx-lm's dense checkpoints name neither a list nor experts.
  const bool by_step = !listed && c.has("num_local_experts") && step > 0 && step <= layers;
  if (!sparse.empty() || by_step)
    fail(ErrorKind::unsupported,
         "{}: llama4_text with experts (moe_layers) is not supported under this model_type", c.where());
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8});
  refuse_experts(c, d.layers);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const int width = c.integer("intermediate_size_mlp", 1, kMaxWidth, 16384);
  const auto activation = activation_from(c, "hidden_act", "silu");
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto rotated = rotated_layers(c, d.layers, 4);
  const int chunk =
      c.is_null("attention_chunk_size") ? 0 : c.integer("attention_chunk_size", 1, kMaxPositions, 8192);
  const auto rope = Rope::from(c, d, {.theta = 500000.0f, .interleaved = true});
  std::optional<QueryTemperature> temperature;
  if (c.get("attn_temperature_tuning", true))
    temperature = {.factor = c.get("attn_scale", 0.1f),
                   .length = c.integer("floor_scale", 1, kMaxPositions, 8192),
                   .shift = 1};
  std::optional<HeadNormOptions> qk_norm;
  if (c.get("use_qk_norm", true)) qk_norm = {.eps = eps, .weighted = false, .after_rope = true};
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int i, const Weights& layer) {
    const bool turns = rotated[static_cast<size_t>(i)];
    AttentionOptions attention{.rope = rope_if(turns, rope), .qkv_bias = bias, .out_bias = bias};
    if (turns) {
      attention.qk_norm = qk_norm;
      attention.chunk = chunk;
    } else {
      attention.temperature = temperature;
    }
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d, attention),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = GatedMlp(layer / "feed_forward", d.hidden, width, activation, Bias::none)};
  });
}

}  // namespace

Arch arch_llama4_text() {
  return {.model_types = {"llama4_text"},
          .reference = "transformers Llama4ForCausalLM",
          .build = build,
          .weights = {rename("output.*", "lm_head.*")},
          .tiny = R"({"model_type": "llama4_text", "vocab_size": 256, "hidden_size": 192,
              "intermediate_size_mlp": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-2, "rope_theta": 10000.0, "moe_layers": [], "no_rope_layers": [1, 0, 1],
              "interleave_moe_layer_step": 1, "attention_chunk_size": 9, "attn_temperature_tuning": true,
              "floor_scale": 7, "attn_scale": 0.5, "use_qk_norm": true, "attention_bias": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
