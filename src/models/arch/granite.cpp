// IBM Granite dense: Llama with four multipliers, of embeddings, scores, residual branches and logits.
// Reference: transformers GraniteForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.vocab = 32000, .hidden = 4096, .layers = 32, .heads = 32});
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 11008);
  const auto activation = activation_from(c, "hidden_act", "silu");
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  const Bias attention_bias = bias_if(c.get("attention_bias", false)),
             mlp_bias = bias_if(c.get("mlp_bias", false));
  const auto rope = Rope::from(c, d);
  const float scores = factor(c, "attention_multiplier"), branches = factor(c, "residual_multiplier");
  const StandardOptions options{.tie = tied(c, false), .embedding_scale = factor(c, "embedding_multiplier")};
  auto model = standard_decoder(w, d, norm, options, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "input_layernorm"),
        .mixer = Attention(
            layer / "self_attn", d,
            {.rope = rope, .scale = scores, .qkv_bias = attention_bias, .out_bias = attention_bias}),
        .ffn_norm = norm(layer, "post_attention_layernorm"),
        .ffn = GatedMlp(layer / "mlp", d.hidden, width, activation, mlp_bias),
        .scale = branches};
  });
  model.logit_scale(1.0f / factor(c, "logits_scaling"));
  return model;
}

}  // namespace

Arch arch_granite() {
  return {
      .model_types = {"granite"},
      .gguf = {"granite"},
      .reference = "transformers GraniteForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "granite", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true,
              "embedding_multiplier": 1.5, "attention_multiplier": 0.3, "residual_multiplier": 0.7,
              "logits_scaling": 0.5})"};
}

}  // namespace mlxcel
