// Cohere Command R: one bias-free LayerNorm feeds attention and MLP side by side; adjacent pairs are rotated;
// logits are scaled. Reference: transformers CohereForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "layer_norm_eps", 1e-5f);
  const auto norm = layer_norms(d.hidden, eps, Bias::none);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto rope = Rope::from(c, d, {.theta = 500000.0f, .interleaved = true});
  std::optional<HeadNormOptions> qk_norm;
  if (c.get("use_qk_norm", false))
    qk_norm = {.eps = eps, .kind = HeadNormOptions::Kind::layer, .over = HeadNormOptions::Over::each_head};
  auto model = standard_decoder(w, d, norm, {.tie = tied(c, true)}, [&](int, const Weights& layer) {
    return Parallel{
        .norm = norm(layer, "input_layernorm"),
        .mixer = Attention(layer / "self_attn", d,
                           {.rope = rope, .qk_norm = qk_norm, .qkv_bias = bias, .out_bias = bias}),
        .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none)};
  });
  model.logit_scale(factor(c, "logit_scale", 0.0625f));
  return model;
}

}  // namespace

Arch arch_cohere() {
  return {.model_types = {"cohere"},
          .gguf = {"command-r"},
          .reference = "transformers CohereForCausalLM",
          .build = build,
          .tiny = R"({"model_type": "cohere", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "layer_norm_eps": 1e-5, "rope_theta": 10000.0,
              "use_qk_norm": true, "attention_bias": true, "logit_scale": 0.5, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
