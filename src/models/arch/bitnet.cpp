// BitNet b1.58: Llama with a norm before each output projection and a gated squared ReLU. Reference:
// transformers BitNetForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// down(norm(activation(gate(x)) * up(x)))
class NormedMlp {
 public:
  NormedMlp(const Weights& w, int hidden, int width, Activation activation, float eps)
      : gate_up_(w.gated("gate_proj", "up_proj", width, hidden, Bias::none)),
        norm_(w.rms_norm("ffn_sub_norm", width, eps)),
        down_(w.linear("down_proj", hidden, width, Bias::none)),
        activation_(activation) {}
  array operator()(const array& x, const Residual& residual = std::nullopt) const {
    return down_(norm_(gate_up_(x, activation_)), residual);
  }

 private:
  GatedLinear gate_up_;
  RmsNorm norm_;
  Linear down_;
  Activation activation_;
};

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 5});
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c, "hidden_act", "relu2");
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto rope = Rope::from(c, d, {.theta = 500000.0f});
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope,
                                       .out_norm = OutNorm{.name = "attn_sub_norm", .eps = eps},
                                       .qkv_bias = bias,
                                       .out_bias = bias}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = NormedMlp(layer / "mlp", d.hidden, width, activation, eps)};
  });
}

}  // namespace

Arch arch_bitnet() {
  return {.model_types = {"bitnet"},
          .gguf = {"bitnet"},
          .reference = "transformers BitNetForCausalLM",
          .build = build,
          .tiny = R"({"model_type": "bitnet", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "relu2",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "attention_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
