// Qwen 1.5, 2 and 2.5 dense decoders, and MiMo 7B with its block that predicts further. Reference:
// transformers Qwen2ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// What a config leaves out; the text side of Qwen2-VL and Qwen2.5-VL has the largest model's sizes.
struct Defaults {
  Dims dims;
  int width, first_sliding;
  float eps, theta;
};

Defaults defaults_of(const Config& c) {
  const auto type = c.get<std::string>("model_type", "");
  if (type.starts_with("qwen2_vl") || type.starts_with("qwen2_5_vl"))
    return {
        {.vocab = 152064, .hidden = 8192, .layers = 80, .heads = 64, .kv_heads = 8}, 29568, 80, 1e-5f, 1e6f};
  return {
      {.vocab = 151936, .hidden = 4096, .layers = 32, .heads = 32, .kv_heads = 32}, 22016, 28, 1e-6f, 1e4f};
}

Decoder build(const Config& c, const Weights& w) {
  const Defaults defaults = defaults_of(c);
  const auto d = Dims::from(c, defaults.dims);
  const int width = c.integer("intermediate_size", 1, kMaxWidth, defaults.width);
  const auto activation = activation_from(c, "hidden_act", "silu");
  const bool slides = c.get("use_sliding_window", false);
  const int window = slides ? c.integer("sliding_window", 1, kMaxPositions, 4096) : 0;
  const int first_sliding = c.integer("max_window_layers", 0, kMaxLayers, defaults.first_sliding);
  const auto plan = LayerPlan::from(c, d.layers, window, [&](int i) { return slides && i >= first_sliding; });
  const auto rope = Rope::from(c, d, {.theta = defaults.theta});

  return pre_norm_decoder(c, w, d, epsilon(c, "rms_norm_eps", defaults.eps),
                          {.mixer =
                               [&](int i, const Weights& layer) {
                                 return Attention(layer / "self_attn", d,
                                                  {.rope = rope,
                                                   .window = plan.window(i),
                                                   .qkv_bias = Bias::required,
                                                   .out_bias = Bias::none});
                               },
                           .ffn =
                               [&](int, const Weights& layer) {
                                 return GatedMlp(layer / "mlp", d.hidden, width, activation, Bias::none);
                               }});
}

/// MiMo's: the state comes before the token, and each of its published layers is a block of its own, of which
/// the first is used for every token of a draft.
MtpBlock mtp(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const Weights own = w / "mtp";
  return {
      .embedding_norm = own.rms_norm("token_layernorm", d.hidden, eps),
      .hidden_norm = own.rms_norm("hidden_layernorm", d.hidden, eps),
      .join = own.linear("input_proj", d.hidden, 2 * d.hidden, Bias::none),
      .layers = {PreNorm{
          .mixer_norm = own.rms_norm("input_layernorm", d.hidden, eps),
          .mixer = Attention(own / "self_attn", d,
                             {.rope = Rope::from(c, d), .qkv_bias = Bias::required, .out_bias = Bias::none}),
          .ffn_norm = own.rms_norm("post_attention_layernorm", d.hidden, eps),
          .ffn = GatedMlp::from(c, own / "mlp", d.hidden)}},
      .norm = own.rms_norm("final_layernorm", d.hidden, eps),
      .goes_on_normed = true,
      .state_first = true};
}

}  // namespace

Arch arch_qwen2() {
  return {.model_types = {"qwen2", "mimo", "qwen2_vl_text", "qwen2_5_vl_text"},
          .gguf = {"qwen2"},
          .reference = "transformers Qwen2ForCausalLM",
          .build = build,
          .weights = {drop("model.mtp_layers.*")},
          .mtp = {.build = mtp, .weights = mtp_rules_of("model.mtp_layers.0.")},
          .tiny = R"({"model_type": "qwen2", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
              "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
              "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1,
              "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
