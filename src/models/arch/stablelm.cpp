// StableLM 2: LayerNorm, a quarter of each head rotated, by switch a LayerNorm for every head of q and k and
// both sublayers side by side. Reference: transformers StableLmForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "layer_norm_eps", 1e-5f);
  const auto norm = layer_norms(d.hidden, eps);
  const bool parallel = c.get("use_parallel_residual", false);
  AttentionOptions attention{.rope = Rope::from(c, d, {.part = 0.25f}),
                             .qkv_bias = c.get("use_qkv_bias", false) ? Bias::required : Bias::none,
                             .out_bias = Bias::none};
  if (c.get("qk_layernorm", false))
    attention.qk_norm = {
        .eps = eps, .kind = HeadNormOptions::Kind::layer, .over = HeadNormOptions::Over::each_head};
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) -> Block {
    const auto before = norm(layer, "input_layernorm");
    const auto mixer = Attention(layer / "self_attn", d, attention);
    const auto ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none);
    if (parallel) return Parallel{.norm = before, .mixer = mixer, .ffn = ffn};
    return PreNorm{.mixer_norm = before,
                   .mixer = mixer,
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = ffn};
  });
}

}  // namespace

Arch arch_stablelm() {
  return {
      .model_types = {"stablelm"},
      .gguf = {"stablelm"},
      .reference = "transformers StableLmForCausalLM",
      .build = build,
      .weights = {stack("*.q_layernorm.norms.#.weight", "*.q_norm.weight"),
                  stack("*.k_layernorm.norms.#.weight", "*.k_norm.weight")},
      .tiny = R"({"model_type": "stablelm", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_act": "silu",
              "max_position_embeddings": 512, "layer_norm_eps": 1e-5, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.25, "use_qkv_bias": true, "qk_layernorm": true,
              "use_parallel_residual": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
