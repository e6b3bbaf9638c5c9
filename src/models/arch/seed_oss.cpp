// ByteDance Seed-OSS: Llama with separate switches for the biases of q, k, v and of the output. Reference:
// transformers SeedOssForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8, .head_dim = 128});
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  const auto rope = Rope::from(c, d);
  const Bias qkv = bias_if(c.get("attention_bias", true)), out = bias_if(c.get("attention_out_bias", false)),
             mlp = bias_if(c.get("mlp_bias", false));
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "input_layernorm"),
        .mixer = Attention(layer / "self_attn", d, {.rope = rope, .qkv_bias = qkv, .out_bias = out}),
        .ffn_norm = norm(layer, "post_attention_layernorm"),
        .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, mlp)};
  });
}

}  // namespace

Arch arch_seed_oss() {
  return {
      .model_types = {"seed_oss"},
      .gguf = {"seed_oss"},
      .reference = "transformers SeedOssForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "seed_oss", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "attention_bias": true, "attention_out_bias": true, "mlp_bias": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
