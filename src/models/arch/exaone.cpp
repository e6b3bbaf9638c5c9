// EXAONE 3: Llama's graph under GPT-2's names. Reference: mlx-lm exaone.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.layers = c.integer("num_layers", 1, kMaxLayers, 0)});
  const auto norm = rms_norms(d.hidden, epsilon(c, "layer_norm_epsilon", 1e-5f));
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c, "activation_function", "silu");
  const Bias attention_bias = bias_if(c.get("attention_bias", false)),
             mlp_bias = bias_if(c.get("mlp_bias", false));
  const auto rope = Rope::from(c, d);
  return standard_decoder(w, d, norm, {.tie = tied(c, true)}, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "input_layernorm"),
        .mixer = Attention(
            layer / "self_attn", d,
            {.rope = rope, .qkv_bias = attention_bias, .out_bias = attention_bias, .out = "out_proj"}),
        .ffn_norm = norm(layer, "post_attention_layernorm"),
        .ffn =
            GatedMlp(layer / "mlp", d.hidden, width, activation, mlp_bias, {"c_fc_0", "c_fc_1", "c_proj"})};
  });
}

}  // namespace

Arch arch_exaone() {
  return {.model_types = {"exaone"},
          .gguf = {"exaone"},
          .reference = "mlx-lm exaone",
          .build = build,
          .weights = {rename("transformer.wte.*", "model.embed_tokens.*"),
                      rename("transformer.ln_f.*", "model.norm.*"),
                      rename("transformer.h.#.attn.attention.*", "model.layers.#.self_attn.*"),
                      rename("transformer.h.#.ln_1.*", "model.layers.#.input_layernorm.*"),
                      rename("transformer.h.#.ln_2.*", "model.layers.#.post_attention_layernorm.*"),
                      rename("transformer.h.#.mlp.*", "model.layers.#.mlp.*")},
          .tiny = R"({"model_type": "exaone", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "activation_function": "silu",
              "max_position_embeddings": 512, "layer_norm_epsilon": 1e-5, "rope_theta": 10000.0,
              "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
