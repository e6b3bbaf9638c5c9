// GLM-4 9B of 2024: half of each head is rotated in adjacent pairs, gate and up in one matrix. Reference:
// transformers GlmForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 2, .head_dim = 128});
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1.5625e-7f));
  const auto rope = Rope::from(c, d, {.part = 0.5f, .interleaved = true});
  const Bias bias = c.get("attention_bias", true) ? Bias::required : Bias::none;
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "input_layernorm"),
        .mixer = Attention(layer / "self_attn", d, {.rope = rope, .qkv_bias = bias, .out_bias = Bias::none}),
        .ffn_norm = norm(layer, "post_attention_layernorm"),
        .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none)};
  });
}

}  // namespace

Arch arch_glm() {
  return {.model_types = {"glm"},
          .gguf = {"chatglm"},
          .reference = "transformers GlmForCausalLM",
          .build = build,
          .weights = {split("*.gate_up_proj.weight", {"*.gate_proj.weight", "*.up_proj.weight"})},
          .tiny = R"({"model_type": "glm", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "attention_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
