// Jamba: Mamba 1 layers with normed choices, attention without positions among them, experts in some layers.
// Reference: transformers JambaForCausalLM.
#include <algorithm>

#include "models/kit.h"
#include "nn/mamba.h"

namespace mlxcel {

namespace {

/// Layers `offset`, `offset + period`, …
bool at_period(const Config& c, int layer, const char* period_key, int period, const char* offset_key,
               int offset) {
  const int every = c.integer(period_key, 1, kMaxLayers, period);
  return layer % every == c.integer(offset_key, 0, every - 1, std::min(offset, every - 1));
}

MambaOptions mamba(const Config& c, int hidden, float eps) {
  MambaOptions o{.hidden = hidden, .norms = MambaOptions::Norms::weighted, .eps = eps};
  o.inner = hidden * c.integer("mamba_expand", 1, 16, 2);
  o.state = c.integer("mamba_d_state", 1, 4096, 16);
  o.taps = c.integer("mamba_d_conv", 2, 16, 4);
  o.rank = MambaOptions::rank_from(c, "mamba_dt_rank", hidden);
  o.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  o.bias = bias_if(c.get("mamba_proj_bias", false));
  o.conv_bias = bias_if(c.get("mamba_conv_bias", true));
  return o;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8});
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto options = mamba(c, d.hidden, eps);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096, 16);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, std::min(2, moe.experts));
  moe.width = width;
  moe.activation = options.activation;
  moe.router = "router";
  moe.bank = "switch_mlp";
  const auto mixer = [&](int i, const Weights& layer) {
    if (!at_period(c, i, "attn_layer_period", 8, "attn_layer_offset", 4))
      return Mixer(MambaMixer(layer / "mamba", options));
    return Mixer(Attention(layer / "self_attn", d, {.qkv_bias = Bias::none, .out_bias = Bias::none}));
  };
  const auto ffn = [&](int i, const Weights& scope) {
    if (moe.experts > 1 && at_period(c, i, "expert_layer_period", 2, "expert_layer_offset", 1))
      return Ffn(SparseMoe(scope, d.hidden, moe));
    return Ffn(GatedMlp(scope, d.hidden, width, options.activation, Bias::none));
  };

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                      .mixer = mixer(i, layer),
                      .ffn_norm = layer.rms_norm("pre_ff_layernorm", d.hidden, eps),
                      .ffn = ffn(i, layer / "feed_forward")});
  model.finish(w.rms_norm("model.final_layernorm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  return model;
}

}  // namespace

Arch arch_jamba() {
  return {.model_types = {"jamba"},
          .gguf = {"jamba"},
          .reference = "transformers JambaForCausalLM",
          .build = build,
          .weights = {stack("*.feed_forward.experts.#.*", "*.feed_forward.switch_mlp.*")},
          .tiny = R"({"model_type": "jamba", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "num_experts": 6, "num_experts_per_tok": 2,
              "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 3, "attn_layer_offset": 2,
              "mamba_d_state": 12, "mamba_d_conv": 4, "mamba_expand": 3, "mamba_dt_rank": 64,
              "mamba_conv_bias": true, "mamba_proj_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
