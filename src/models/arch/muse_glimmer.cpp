// Muse Glimmer text: weightless norms over q and k, gated attention, norms around every sublayer stored
// around zero, three sliding rotated layers to one full plain one. Reference: transformers
// MuseGlimmerForConditionalGeneration.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

/// Layers without a rotation have base 0; by default every fourth, counted from the last.
std::vector<bool> rotated(const Config& c, int layers) {
  std::vector<bool> list;
  const auto bases = c.get<std::vector<float>>("layer_rope_theta", {});
  if (!bases.empty() && static_cast<int>(bases.size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: layer_rope_theta: expected {} numbers, found {}", c.where(), layers,
         bases.size());
  for (int i = 0; i < layers; ++i)
    list.push_back(bases.empty() ? (layers - 1 - i) % 4 != 0 : bases[static_cast<size_t>(i)] != 0.0f);
  return list;
}

Decoder build(const Config& whole, const Weights& w) {
  const Config c = text_config(whole);
  const auto d = Dims::from(c, {.head_dim = 128});
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto before = rms_norms(d.hidden, eps, 1.0f),
             after = rms_norms(d.hidden, epsilon(c, "post_norm_eps", 1e-8f), 1.0f);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c, "hidden_activation", "silu");
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto plan = LayerPlan::from(c, d.layers, c.integer("sliding_window", 0, kMaxPositions, 2048),
                                    [&](int i) { return (d.layers - 1 - i) % 4 != 0; });
  const auto turned = rotated(c, d.layers);
  const auto rope = Rope::from(c, d);
  const float scale = factor(c, "qk_scale_factor", 3.87f) / std::sqrt(static_cast<float>(d.head_dim));

  auto model = standard_decoder(
      w, d, rms_norms(d.hidden, eps), {.tie = tied(c, false)}, [&](int i, const Weights& layer) {
        return Sandwich{.mixer_norm = before(layer, "input_layernorm"),
                        .mixer = Attention(layer / "self_attn", d,
                                           {.rope = rope_if(turned[static_cast<size_t>(i)], rope),
                                            .qk_norm = HeadNormOptions{.eps = eps, .weighted = false},
                                            .window = plan.window(i),
                                            .scale = scale,
                                            .gate = OutputGate{},
                                            .qkv_bias = bias,
                                            .out_bias = bias}),
                        .after_mixer = after(layer, "post_attention_layernorm"),
                        .ffn_norm = before(layer, "pre_feedforward_layernorm"),
                        .ffn = GatedMlp(layer / "mlp", d.hidden, width, activation, Bias::none),
                        .after_ffn = after(layer, "post_feedforward_layernorm")};
      });
  model.embedding_norm(RmsNorm{.weight = {}, .eps = eps});
  model.logit_scale(factor(c, "output_multiplier", 0.19611613513818404f));
  model.softcap(factor(c, "final_logit_softcapping", 20.0f));
  return model;
}

}  // namespace

Arch arch_muse_glimmer() {
  return {.model_types = {"muse_glimmer", "muse_glimmer_text"},
          .gguf = {"muse-glimmer"},
          .reference = "transformers MuseGlimmerForConditionalGeneration",
          .build = build,
          .weights =
              [](const Config&, const Source&) {
                auto rules = text_side_rules();
                rules.insert(rules.begin(), {drop("model.vision_*"), drop("vision_*")});
                return rules;
              },
          .tiny = R"({"model_type": "muse_glimmer", "text_config": {"vocab_size": 256, "hidden_size": 192,
              "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_activation": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-2, "post_norm_eps": 1e-8, "sliding_window": 8,
              "attention_bias": true, "rope_theta": 10000.0, "layer_rope_theta": [10000, 0, 10000, 0],
              "qk_scale_factor": 2.0, "output_multiplier": 0.4, "final_logit_softcapping": 3.0,
              "tie_word_embeddings": false}})"};
}

}  // namespace mlxcel
