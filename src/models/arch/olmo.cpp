// OLMo 1: LayerNorm without parameters, clipped q, k and v. Reference: transformers OlmoForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const NormMaker norm = [](const Weights&, std::string_view) { return Norm(LayerNorm{.weight = {}, .bias = {}, .eps = 1e-5f}); };
  const Bias bias = bias_if(c.get("attention_bias", false));
  const float clip = c.get("clip_qkv", 0.0f);
  if (!(clip >= 0.0f)) fail(ErrorKind::bad_checkpoint, "{}: clip_qkv: expected a positive number, found {}", c.where(), clip);
  const auto rope = Rope::from(c, d);
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, ""),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope, .clip = clip, .qkv_bias = bias, .out_bias = bias}),
                   .ffn_norm = norm(layer, ""),
                   .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none)};
  });
}

}  // namespace

Arch arch_olmo() {
  return {.model_types = {"olmo"},
          .gguf = {"olmo"},
          .reference = "transformers OlmoForCausalLM",
          .build = build,
          .tiny = R"({"model_type": "olmo", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_act": "silu",
              "max_position_embeddings": 512, "rope_theta": 10000.0, "clip_qkv": 0.8,
              "attention_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
