// ERNIE 4.5 dense: Llama rotated in adjacent pairs, biases everywhere by one switch. Reference: transformers
// Ernie4_5ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 2, .head_dim = 128});
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-5f));
  const auto rope = Rope::from(c, d, {.theta = 500000.0f, .interleaved = true});
  const Bias bias = bias_if(c.get("use_bias", false));
  return standard_decoder(w, d, norm, {.tie = tied(c, true)}, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "input_layernorm"),
        .mixer = Attention(layer / "self_attn", d, {.rope = rope, .qkv_bias = bias, .out_bias = bias}),
        .ffn_norm = norm(layer, "post_attention_layernorm"),
        .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, bias)};
  });
}

}  // namespace

Arch arch_ernie4_5() {
  return {
      .model_types = {"ernie4_5", "ernie4.5"},
      .gguf = {"ernie4_5"},
      .reference = "transformers Ernie4_5ForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "ernie4_5", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "use_bias": true, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
