// Swiss Apertus: Llama with normed q and k and an ungated MLP whose activation, xIELU, has two learned
// scalars. Reference: transformers ApertusForCausalLM.
#include <cmath>

#include "models/kit.h"
#include "models/usual_rope.h"

namespace mlxcel {

namespace {

/// down(xielu(up(x))): a parabola right of zero, an exponential left of it. Huang et al. 2024.
class XieluMlp {
 public:
  XieluMlp(const Weights& w, int hidden, int width)
      : up_(w.linear("up_proj", width, hidden, Bias::none)),
        down_(w.linear("down_proj", hidden, width, Bias::none)),
        slope_(w.optional_tensor("act_fn.beta", {1}).value_or(array({0.5f}, {1}))),
        edge_(w.optional_tensor("act_fn.eps", {1}).value_or(array({-1e-6f}, {1}))),
        right_(mx::logaddexp(w.tensor("act_fn.alpha_p", {1}), array(0.0f))),
        left_(mx::add(mx::logaddexp(w.tensor("act_fn.alpha_n", {1}), array(0.0f)), slope_)) {}

  array operator()(const array& x, const Residual& residual = std::nullopt) const {
    const array y = up_(x);
    const array curved = mx::where(mx::greater(y, array(0.0f)), mx::multiply(right_, mx::square(y)),
                                   mx::multiply(mx::subtract(mx::expm1(mx::minimum(y, edge_)), y), left_));
    return down_(mx::add(curved, mx::multiply(y, slope_)), residual);
  }

 private:
  Linear up_, down_;
  array slope_, edge_, right_, left_;
};

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  if (const auto act = c.get<std::string>("hidden_act", "xielu"); act != "xielu")
    fail(ErrorKind::unsupported, "{}: hidden_act: expected xielu, found \"{}\"", c.where(), act);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto rope =
      rope_or(c, d, {.theta = 12000000.0f},
              R"({"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})");
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "attention_layernorm"),
        .mixer = Attention(
            layer / "self_attn", d,
            {.rope = rope, .qk_norm = HeadNormOptions{.eps = eps}, .qkv_bias = bias, .out_bias = bias}),
        .ffn_norm = norm(layer, "feedforward_layernorm"),
        .ffn = XieluMlp(layer / "mlp", d.hidden, width)};
  });
}

}  // namespace

Arch arch_apertus() {
  return {
      .model_types = {"apertus"},
      .gguf = {"apertus"},
      .reference = "transformers ApertusForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "apertus", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "xielu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                               "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
              "attention_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
