// Gemma 2: sliding and full layers in turn, norms around every sublayer, caps on scores and logits.
// Reference: transformers Gemma2ForCausalLM.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 4, .head_dim = 256});
  refuse_two_way(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f), 1.0f);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c, "hidden_activation", "gelu_pytorch_tanh");
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto plan = LayerPlan::from(c, d.layers, c.integer("sliding_window", 0, kMaxPositions, 4096),
                                    [](int i) { return i % 2 == 0; });
  const float scalar = static_cast<float>(c.integer("query_pre_attn_scalar", 1, kMaxWidth, 256));
  const float score_cap = c.is_null("attn_logit_softcapping") ? 0.0f : c.get("attn_logit_softcapping", 50.0f);
  const auto rope = Rope::from(c, d);
  const StandardOptions options{.tie = tied(c, true), .embedding_scale = root_of_width(w, d.hidden)};
  auto model = standard_decoder(w, d, norm, options, [&](int i, const Weights& layer) {
    return Sandwich{.mixer_norm = norm(layer, "input_layernorm"),
                    .mixer = Attention(layer / "self_attn", d,
                                       {.rope = rope,
                                        .window = plan.window(i),
                                        .scale = 1.0f / std::sqrt(scalar),
                                        .softcap = score_cap,
                                        .qkv_bias = bias,
                                        .out_bias = bias}),
                    .after_mixer = norm(layer, "post_attention_layernorm"),
                    .ffn_norm = norm(layer, "pre_feedforward_layernorm"),
                    .ffn = GatedMlp(layer / "mlp", d.hidden, width, activation, Bias::none),
                    .after_ffn = norm(layer, "post_feedforward_layernorm")};
  });
  model.softcap(c.is_null("final_logit_softcapping") ? 0.0f : c.get("final_logit_softcapping", 30.0f));
  return model;
}

}  // namespace

Arch arch_gemma2() {
  return {.model_types = {"gemma2"},
          .gguf = {"gemma2"},
          .reference = "transformers Gemma2ForCausalLM",
          .build = build,
          .tiny = R"({"model_type": "gemma2", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "query_pre_attn_scalar": 24, "sliding_window": 8,
              "attn_logit_softcapping": 6.0, "final_logit_softcapping": 5.0, "attention_bias": false})"};
}

}  // namespace mlxcel
