// InternLM 3: Llama with switches for the biases of q, k, v and of everything else. Reference: transformers
// InternLM3 (modular), mlx-lm internlm3.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 2});
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  const auto rope = Rope::from(c, d);
  const Bias qkv = bias_if(c.get("qkv_bias", false)), bias = bias_if(c.get("bias", false));
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "input_layernorm"),
        .mixer = Attention(layer / "self_attn", d, {.rope = rope, .qkv_bias = qkv, .out_bias = bias}),
        .ffn_norm = norm(layer, "post_attention_layernorm"),
        .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, bias)};
  });
}

}  // namespace

Arch arch_internlm3() {
  return {
      .model_types = {"internlm3"},
      .gguf = {"llama"},
      .reference = "mlx-lm internlm3",
      .build = build,
      .tiny = R"({"model_type": "internlm3", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "qkv_bias": true, "bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
