// Granite 4: Mamba 2 or attention layers, with or without positions, then a dense MLP that stands beside
// experts or alone; embeddings, scores, residual branches and logits are scaled. Reference: transformers
// GraniteMoeHybridForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Mamba2Options mamba(const Config& c, int hidden, float eps, Activation activation) {
  Mamba2Options o{.hidden = hidden, .eps = eps};
  const int inner = hidden * c.integer("mamba_expand", 1, 16, 2);
  o.heads = c.integer("mamba_n_heads", 1, 65536, 128);
  o.head_dim = c.is_string("mamba_d_head") && c.get<std::string>("mamba_d_head") == "auto"
                   ? inner / o.heads
                   : c.integer("mamba_d_head", 1, 65536, inner / o.heads);
  o.state = c.integer("mamba_d_state", 1, 4096, 256);
  o.groups = c.integer("mamba_n_groups", 1, 65536, 1);
  o.taps = c.integer("mamba_d_conv", 2, 16, 4);
  o.activation = activation;
  o.bias = bias_if(c.get("mamba_proj_bias", false));
  o.conv_bias = bias_if(c.get("mamba_conv_bias", true));
  o.read_limits(c, "time_step_limit");
  o.check(c, inner);
  return o;
}

std::vector<bool> attention_layers(const Config& c, int layers) {
  const auto kinds =
      listed_kinds(c, "layer_types", layers, {"mamba", "attention", "linear_attention", "full_attention"});
  std::vector<bool> list(static_cast<size_t>(layers), false);
  for (size_t i = 0; i < kinds.size(); ++i) list[i] = kinds[i] == "attention" || kinds[i] == "full_attention";
  return list;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  const auto options = mamba(c, d.hidden, eps, activation);
  const auto attends = attention_layers(c, d.layers);
  const Bias bias = bias_if(c.get("attention_bias", false));
  AttentionOptions attention{
      .scale = c.get("attention_multiplier", 1.0f), .qkv_bias = bias, .out_bias = bias};
  if (c.get<std::string>("position_embedding_type", "nope") == "rope") attention.rope = Rope::from(c, d);
  const int shared_width = c.integer("shared_intermediate_size", 1, kMaxWidth, 1024);
  MoeOptions moe;
  moe.experts = c.integer("num_local_experts", 0, 4096, 8);
  if (moe.experts > 0) {
    moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 2);
    moe.width = c.integer("intermediate_size", 1, kMaxWidth, 11008);
    moe.activation = activation;
    moe.scoring = Scoring::chosen_softmax;
    moe.router = "block_sparse_moe.router.layer";
    moe.bank = "block_sparse_moe.switch_mlp";
    moe.shared = {.width = shared_width, .name = "shared_mlp", .bias = Bias::none};
  }
  const auto mixer = [&](int i, const Weights& layer) {
    return attends[static_cast<size_t>(i)] ? Mixer(Attention(layer / "self_attn", d, attention))
                                           : Mixer(Mamba2Mixer(layer / "mamba", options));
  };
  const auto ffn = [&](const Weights& layer) -> Ffn {
    if (moe.experts > 0) return SparseMoe(layer, d.hidden, moe);
    return GatedMlp(layer / "shared_mlp", d.hidden, shared_width, activation, Bias::none);
  };

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden, factor(c, "embedding_multiplier")));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                      .mixer = mixer(i, layer),
                      .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                      .ffn = ffn(layer),
                      .scale = factor(c, "residual_multiplier")});
  model.finish(w.rms_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  model.logit_scale(1.0f / factor(c, "logits_scaling"));
  return model;
}

}  // namespace

Arch arch_granitemoehybrid() {
  return {
      .model_types = {"granitemoehybrid"},
      .gguf = {"granitehybrid"},
      .reference = "transformers GraniteMoeHybridForCausalLM",
      .build = build,
      .weights = {split("*.shared_mlp.input_linear.weight",
                        {"*.shared_mlp.gate_proj.weight", "*.shared_mlp.up_proj.weight"}),
                  rename("*.shared_mlp.output_linear.*", "*.shared_mlp.down_proj.*"),
                  rename("*.layers.#.mlp.*", "*.layers.#.shared_mlp.*"),  // dense models as MLX converts them
                  split_axis(-2, "*.block_sparse_moe.input_linear.weight",
                             {"*.block_sparse_moe.switch_mlp.gate_proj.weight",
                              "*.block_sparse_moe.switch_mlp.up_proj.weight"}),
                  rename("*.block_sparse_moe.output_linear.*", "*.block_sparse_moe.switch_mlp.down_proj.*")},
      .tiny =
          R"({"model_type": "granitemoehybrid", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64,
              "shared_intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "layer_types": ["mamba", "attention", "mamba"], "position_embedding_type": "rope",
              "rope_theta": 10000.0, "attention_bias": true, "attention_multiplier": 0.2,
              "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 1.5,
              "num_local_experts": 6, "num_experts_per_tok": 3, "mamba_expand": 3, "mamba_n_heads": 6,
              "mamba_d_head": 32, "mamba_n_groups": 3, "mamba_d_state": 12, "mamba_d_conv": 4,
              "mamba_conv_bias": true, "mamba_proj_bias": true, "time_step_limit": [0.05, 1.5],
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
