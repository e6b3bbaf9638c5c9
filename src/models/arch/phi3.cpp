// Phi-3, Phi-3.5-mini and Phi-4: q, k, v and gate, up each in one matrix; longrope, whose factors depend on
// the prompt's length. Reference: transformers Phi3ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-5f));
  const int window = c.integer("sliding_window", 0, kMaxPositions, 0);
  const auto rope = Rope::from(c, d, {.yarn_is_longrope = true});
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope,
                                       .window = window,
                                       .qkv_bias = Bias::none,
                                       .out_bias = Bias::none,
                                       .fused = "qkv_proj"}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none)};
  });
}

}  // namespace

Arch arch_phi3() {
  return {.model_types = {"phi3"},
          .gguf = {"phi3"},
          .reference = "transformers Phi3ForCausalLM",
          .build = build,
          .weights = {split("*.gate_up_proj.weight", {"*.gate_proj.weight", "*.up_proj.weight"})},
          .tiny = R"({"model_type": "phi3", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
              "hidden_act": "silu", "max_position_embeddings": 512, "original_max_position_embeddings": 36,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
              "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.5],
                               "long_factor": [1.0, 2.0, 3.0, 5.0]},
              "sliding_window": 8, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
