// Phi-1, 1.5 and 2: one LayerNorm feeds attention and an ungated MLP side by side; the head has a bias.
// Reference: transformers PhiForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  if (c.get("qk_layernorm", false))
    fail(ErrorKind::unsupported, "{}: qk_layernorm true: no published Phi has it", c.where());
  const auto norm = layer_norms(d.hidden, epsilon(c, "layer_norm_eps", 1e-5f));
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 4 * d.hidden);
  const auto activation = activation_from(c, "hidden_act", "gelu_new");
  const auto rope = Rope::from(c, d, {.part = 0.5f});
  const StandardOptions options{.tie = tied(c, false), .head_bias = Bias::required};
  return standard_decoder(w, d, norm, options, [&](int, const Weights& layer) {
    return Parallel{
        .norm = norm(layer, "input_layernorm"),
        .mixer =
            Attention(layer / "self_attn", d,
                      {.rope = rope, .qkv_bias = Bias::required, .out_bias = Bias::required, .out = "dense"}),
        .ffn = Mlp(layer / "mlp", "fc1", "fc2", d.hidden, width, activation, Bias::required)};
  });
}

}  // namespace

Arch arch_phi() {
  return {.model_types = {"phi"},
          .gguf = {"phi2"},
          .reference = "transformers PhiForCausalLM",
          .build = build,
          .weights = {rename("model.final_layernorm.*", "model.norm.*")},
          .tiny = R"({"model_type": "phi", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "gelu_new",
              "max_position_embeddings": 512, "layer_norm_eps": 1e-5, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.5, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
