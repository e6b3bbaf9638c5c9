// Mamba 1 and Falcon-Mamba: scans chosen token by token, without attention or feed-forward. Falcon-Mamba
// norms what a token chooses. Reference: transformers MambaForCausalLM, FalconMambaForCausalLM.
#include "nn/mamba.h"
#include "models/kit.h"

namespace mlxcel {

namespace {

Dims dims(const Config& c) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("hidden_size", 1, kMaxWidth / 16);
  d.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  return d;
}

MambaOptions mixer(const Config& c, int hidden) {
  MambaOptions o{.hidden = hidden};
  o.inner = hidden * c.integer("expand", 1, 16, 2);
  o.state = c.integer("state_size", 1, 4096, 16);
  o.taps = c.integer("conv_kernel", 2, 16, 4);
  o.rank = MambaOptions::rank_from(c, "time_step_rank", hidden);
  o.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  o.bias = bias_if(c.get("use_bias", false));
  o.conv_bias = bias_if(c.get("use_conv_bias", true));
  if (c.get<std::string>("model_type") == "falcon_mamba") {
    o.norms = MambaOptions::Norms::weightless;
    o.eps = epsilon(c, "mixer_rms_eps", 1e-6f);
  }
  return o;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const float eps = epsilon(c, "layer_norm_epsilon", 1e-5f);
  const auto options = mixer(c, d.hidden);

  Decoder model(d, w.embedding("backbone.embeddings", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("backbone.layers", d.layers))
    model.add(MixerOnly{.norm = layer.rms_norm("norm", d.hidden, eps),
                        .mixer = MambaMixer(layer / "mixer", options)});
  model.finish(w.rms_norm("backbone.norm_f", d.hidden, eps),
               make_head(w, "lm_head", "backbone.embeddings", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", true))));
  return model;
}

}  // namespace

Arch arch_mamba() {
  return {
      .model_types = {"mamba", "falcon_mamba"},
      .gguf = {"mamba"},
      .reference = "transformers MambaForCausalLM",
      .build = build,
      .weights = {rename("backbone.embedding.*", "backbone.embeddings.*")},  // as its authors spell it
      .tiny = R"({"model_type": "falcon_mamba", "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 3,
              "expand": 3, "state_size": 12, "conv_kernel": 4, "time_step_rank": 64, "hidden_act": "silu",
              "layer_norm_epsilon": 1e-5, "mixer_rms_eps": 1e-6, "use_bias": true, "use_conv_bias": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
