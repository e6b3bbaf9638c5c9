// Gemma 1: norms stored around zero, scaled embeddings, a tanh-GELU gate. Reference: transformers
// GemmaForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 16, .head_dim = 256});
  refuse_two_way(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f), 1.0f);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  // "gelu" in the older configs means the approximation too.
  const auto named = activation_from(c, "hidden_act", "gelu_pytorch_tanh");
  const auto activation = named == Activation::gelu ? Activation::gelu_tanh : named;
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto rope = Rope::from(c, d);
  const StandardOptions options{.tie = tied(c, true), .embedding_scale = root_of_width(w, d.hidden)};
  return standard_decoder(w, d, norm, options, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "input_layernorm"),
        .mixer = Attention(layer / "self_attn", d, {.rope = rope, .qkv_bias = bias, .out_bias = bias}),
        .ffn_norm = norm(layer, "post_attention_layernorm"),
        .ffn = GatedMlp(layer / "mlp", d.hidden, width, activation, Bias::none)};
  });
}

}  // namespace

Arch arch_gemma() {
  return {.model_types = {"gemma"},
          .gguf = {"gemma"},
          .reference = "transformers GemmaForCausalLM",
          .build = build,
          .tiny = R"({"model_type": "gemma", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "gelu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "attention_bias": true})"};
}

}  // namespace mlxcel
