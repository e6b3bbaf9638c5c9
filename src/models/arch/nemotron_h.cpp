// Nemotron-H and Nemotron 3: layers of a single part each, in a given order: Mamba 2 scan, attention without
// positions, plain MLP, or experts (perhaps in a narrower space) beside a shared one.
// Reference: transformers NemotronHForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// 'M' scan, '*' attention, '-' MLP, 'E' experts, a letter a layer.
std::string pattern(const Config& c) {
  std::string letters;
  for (const char* key : {"layers_block_type", "layer_types"})
    if (letters.empty())
      for (const auto& kind : c.get<std::vector<std::string>>(key, {}))
        letters += kind == "mamba" || kind == "linear_attention"     ? 'M'
                   : kind == "attention" || kind == "full_attention" ? '*'
                   : kind == "mlp"                                   ? '-'
                   : kind == "moe"                                   ? 'E'
                                                                     : '?';
  if (letters.empty()) letters = c.get<std::string>("hybrid_override_pattern");
  if (letters.empty() || letters.size() > kMaxLayers ||
      letters.find_first_not_of("M*-E") != std::string::npos)
    fail(ErrorKind::bad_checkpoint,
         "{}: layer kinds \"{}\": expected 1 to {} of mamba (M), attention (*), mlp (-) and "
         "moe (E)",
         c.where(), letters, kMaxLayers);
  return letters;
}

Mamba2Options mamba(const Config& c, int hidden, float eps) {
  Mamba2Options o{.hidden = hidden, .eps = eps};
  o.heads = c.integer("mamba_num_heads", 1, 65536, 128);
  o.head_dim = c.integer("mamba_head_dim", 1, 65536, 64);
  o.state = c.integer("ssm_state_size", 1, 4096, 128);
  o.groups = c.integer("n_groups", 1, 65536, c.integer("mamba_n_groups", 1, 65536, 8));
  o.taps = c.integer("conv_kernel", 2, 16, c.integer("mamba_d_conv", 2, 16, 4));
  o.activation = activation_from(c.get<std::string>("mamba_hidden_act", "silu"));
  o.bias = bias_if(c.get("use_bias", false));
  o.conv_bias = bias_if(c.get("use_conv_bias", c.get("mamba_conv_bias", true)));
  o.dt_min = c.get("time_step_min", 0.001f);  // the only limit that the reference puts in force
  o.check(c, o.heads * o.head_dim);
  return o;
}

/// Experts that read and write a narrower space, or the model's own; a shared one beside them.
MoeOptions experts(const Config& c, Activation activation, Bias bias) {
  MoeOptions o = MoeOptions::grouped(c);
  o.activation = activation;
  o.gated = false;
  o.shared = {
      .width = c.integer("moe_shared_expert_intermediate_size", 1, kMaxWidth), .gated = false, .bias = bias};
  o.latent.width = c.has("moe_latent_size") ? c.integer("moe_latent_size", 1, kMaxWidth) : 0;
  o.latent.into = "fc1_latent_proj";
  o.latent.back = "fc2_latent_proj";
  o.latent.bias = bias;
  return o;
}

Dims dims(const Config& c, int layers) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("hidden_size", 1, kMaxWidth);
  d.layers = layers;
  d.heads = c.integer("num_attention_heads", 1, 4096, 32);
  d.kv_heads = c.integer("num_key_value_heads", 1, d.heads, d.heads % 8 == 0 ? 8 : d.heads);
  d.head_dim = c.integer("head_dim", 1, 8192, c.integer("attention_head_dim", 1, 8192, 128));
  d.max_positions = c.integer("max_position_embeddings", 0, kMaxPositions, 0);
  if (d.heads % d.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: num_attention_heads {}: expected a multiple of num_key_value_heads {}", c.where(), d.heads,
         d.kv_heads);
  return d;
}

/// One layer of the kind that its letter says.
Block layer_of(const Config& c, const Weights& layer, const Dims& d, char kind) {
  const float eps = epsilon(c, "layer_norm_epsilon", 1e-5f);
  const auto activation = activation_from(c.get<std::string>("mlp_hidden_act", "relu2"));
  const Bias mlp_bias = bias_if(c.get("mlp_bias", false));
  const Weights scope = layer / "mixer";
  const auto mixer = [&]() -> Mixer {
    if (kind == 'M') return Mamba2Mixer(scope, mamba(c, d.hidden, eps));
    if (kind == '*') return Attention(scope, d, {.qkv_bias = Bias::none, .out_bias = Bias::none});
    if (kind == 'E') return SparseMoe(scope, d.hidden, experts(c, activation, mlp_bias));
    const int width = c.integer("intermediate_size", 1, kMaxWidth);
    return Mlp(scope, "up_proj", "down_proj", d.hidden, width, activation, mlp_bias);
  };
  return MixerOnly{.norm = layer.rms_norm("norm", d.hidden, eps), .mixer = mixer()};
}

Decoder build(const Config& c, const Weights& w) {
  const std::string kinds = pattern(c);
  const Dims d = dims(c, static_cast<int>(kinds.size()));
  const float eps = epsilon(c, "layer_norm_epsilon", 1e-5f);

  Decoder model(d, w.embedding("backbone.embeddings", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("backbone.layers", d.layers))
    model.add(layer_of(c, layer, d, kinds[static_cast<size_t>(i)]));
  model.finish(w.rms_norm("backbone.norm_f", d.hidden, eps),
               make_head(w, "lm_head", "backbone.embeddings", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  return model;
}

/// Attention, then experts, by a pattern of its own; the first layer has the join, the last the norm.
MtpBlock mtp(const Config& c, const Weights& w) {
  const auto kinds = c.get<std::string>("mtp_hybrid_override_pattern", "*E");
  if (kinds.empty() || kinds.size() > kMaxLayers || kinds.find_first_not_of("*E-") != std::string::npos)
    fail(ErrorKind::bad_checkpoint, "{}: mtp_hybrid_override_pattern \"{}\": expected letters *, E and -",
         c.where(), kinds);
  const auto count = static_cast<int>(kinds.size());
  const Dims d = dims(c, count);
  const float eps = epsilon(c, "layer_norm_epsilon", 1e-5f);
  const Weights own = w / "mtp", first = own / "layers.0", last = own / fmt::format("layers.{}", count - 1);
  MtpBlock block{.embedding_norm = first.rms_norm("enorm", d.hidden, eps),
                 .hidden_norm = first.rms_norm("hnorm", d.hidden, eps),
                 .join = first.linear("eh_proj", d.hidden, 2 * d.hidden, Bias::none),
                 .layers = {},
                 .norm = last.rms_norm("final_layernorm", d.hidden, eps),
                 .goes_on_normed = true};
  for (const auto& [i, layer] : own.layers("layers", count))
    block.layers.push_back(layer_of(c, layer, d, kinds[static_cast<size_t>(i)]));
  return block;
}

}  // namespace

Arch arch_nemotron_h() {
  return {
      .model_types = {"nemotron_h"},
      .gguf = {"nemotron_h", "nemotron_h_moe"},
      .reference = "transformers NemotronHForCausalLM",
      .build = build,
      .weights = {drop("mtp.*"), rename("model.*", "backbone.*"),
                  rename("*.switch_mlp.fc1.*", "*.switch_mlp.up_proj.*"),
                  rename("*.switch_mlp.fc2.*", "*.switch_mlp.down_proj.*"),
                  stack("*.mixer.experts.#.*", "*.mixer.switch_mlp.*")},
      .mtp = {.build = mtp,
              .weights = mtp_rules_of("mtp.") +
                         std::vector<Rule>{stack("*.mixer.experts.#.*", "*.mixer.switch_mlp.*")}},
      .tiny = R"({"model_type": "nemotron_h", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "hybrid_override_pattern": "M*-E", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "max_position_embeddings": 512, "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2",
              "mlp_bias": true, "mamba_num_heads": 6, "mamba_head_dim": 32, "ssm_state_size": 12, "n_groups": 3,
              "conv_kernel": 4, "mamba_hidden_act": "silu", "use_bias": true, "use_conv_bias": true,
              "time_step_min": 0.05, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
              "moe_shared_expert_intermediate_size": 64, "moe_latent_size": 128, "n_group": 2, "topk_group": 1,
              "norm_topk_prob": true, "routed_scaling_factor": 1.5, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
