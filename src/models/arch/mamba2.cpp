// Mamba-2 (Codestral Mamba): state-space layers without attention or feed-forward. Reference: transformers
// Mamba2ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Dims dims(const Config& c) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("hidden_size", 1, kMaxWidth);
  d.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  return d;
}

Mamba2Options mixer(const Config& c, int hidden, float eps) {
  Mamba2Options o{.hidden = hidden, .eps = eps};
  o.heads = c.integer("num_heads", 1, 65536, 128);
  o.head_dim = c.integer("head_dim", 1, 65536, 64);
  o.state = c.integer("state_size", 1, 4096, 128);
  o.groups = c.integer("n_groups", 1, 65536, 8);
  o.taps = c.integer("conv_kernel", 2, 16, 4);
  o.read_limits(c, "time_step_limit");
  o.activation = activation_from(c, "hidden_act", "silu");
  o.bias = bias_if(c.get("use_bias", false));
  o.conv_bias = bias_if(c.get("use_conv_bias", true));
  o.check(c, static_cast<long long>(hidden) * c.integer("expand", 1, 16, 2));
  return o;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const float eps = epsilon(c, "layer_norm_epsilon", 1e-5f);
  const auto options = mixer(c, d.hidden, eps);

  Decoder model(d, w.embedding("backbone.embeddings", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("backbone.layers", d.layers))
    model.add(MixerOnly{.norm = layer.rms_norm("norm", d.hidden, eps),
                        .mixer = Mamba2Mixer(layer / "mixer", options)});
  model.finish(w.rms_norm("backbone.norm_f", d.hidden, eps),
               make_head(w, "lm_head", "backbone.embeddings", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  return model;
}

}  // namespace

Arch arch_mamba2() {
  return {.model_types = {"mamba2"},
          .gguf = {"mamba2"},
          .reference = "transformers Mamba2ForCausalLM",
          .build = build,
          .weights = {rename("backbone.embedding.*", "backbone.embeddings.*")},  // as its authors spell it
          .tiny = R"({"model_type": "mamba2", "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 3,
              "expand": 3, "num_heads": 6, "head_dim": 32, "state_size": 12, "n_groups": 3, "conv_kernel": 4,
              "hidden_act": "silu", "layer_norm_epsilon": 1e-5, "use_bias": true, "use_conv_bias": true,
              "time_step_limit": [0.05, 1.5], "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
