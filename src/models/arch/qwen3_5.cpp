// Qwen3.5 and 3.6, dense and sparse, alone or inside a vision wrapper: Qwen3-Next's layers with their
// projections apart. Images count positions on three axes; text has the same on each, so it rotates plainly.
// Reference: transformers Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM.
#include "models/kit.h"
#include "models/wrapper.h"
#include "nn/delta.h"
#include "nn/gated_attention.h"

namespace mlxcel {

namespace {

Ffn experts(const Config& c, const Weights& mlp, int hidden, Activation activation) {
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 8);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth, 512);
  moe.renormalize = true;
  moe.activation = activation;
  moe.bank = "switch_mlp";
  moe.shared = {.width = c.integer("shared_expert_intermediate_size", 1, kMaxWidth, 512),
                .mix = SharedMix::gated,
                .name = "shared_expert",
                .gate = "shared_expert_gate"};
  return SparseMoe(mlp, hidden, moe);
}

Dims dims(const Config& c) {
  auto d = Dims::from(c);
  d.head_dim = c.integer("head_dim", 2, 8192, 256);
  return d;
}

GatedAttentionOptions full_attention(const Config& c, const Dims& d, float eps) {
  return {
      .rope = Rope::from(c, d, {.part = 0.25f}), .eps = eps, .bias = bias_if(c.get("attention_bias", false))};
}

Ffn feed_forward(const Config& c, const Weights& mlp, int hidden) {
  const Activation activation = activation_from(c, "hidden_act", "silu");
  if (c.integer("num_experts", 0, 4096, 0) > 0) return experts(c, mlp, hidden, activation);
  return GatedMlp(mlp, hidden, c.integer("intermediate_size", 1, kMaxWidth), activation);
}

Decoder build(const Config& whole, const Weights& w) {
  const Config c = text_config(whole);
  const Dims d = dims(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto delta = GatedDeltaOptions::from(c, d.hidden, eps);
  const auto full = full_attention_layers(c, d.layers);
  const auto attention = full_attention(c, d, eps);
  const auto mixer = [&](int i, const Weights& layer) {
    return full[static_cast<size_t>(i)] ? Mixer(GatedAttention(layer / "self_attn", d, attention))
                                        : Mixer(GatedDeltaMixer(layer / "linear_attn", delta));
  };
  const bool tied = c.get("tie_word_embeddings", whole.get("tie_word_embeddings", false));

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                      .mixer = mixer(i, layer),
                      .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                      .ffn = feed_forward(c, layer / "mlp", d.hidden)});
  model.finish(w.rms_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(), tie_if(tied)));
  return model;
}

MtpBlock mtp(const Config& whole, const Weights& w) {
  const Config c = text_config(whole);
  const Dims d = dims(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const Weights own = w / "mtp", layer = own / "layers.0";
  return qwen_mtp(own, d.hidden, eps,
                  {PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                           .mixer = GatedAttention(layer / "self_attn", d, full_attention(c, d, eps)),
                           .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                           .ffn = feed_forward(c, layer / "mlp", d.hidden)}});
}

std::vector<Rule> layer_rules() {
  return {stack("*.mlp.experts.#.*", "*.mlp.switch_mlp.*"),
          split_axis(-2, "*.mlp.experts.gate_up_proj",
                     {"*.mlp.switch_mlp.gate_proj.weight", "*.mlp.switch_mlp.up_proj.weight"}),
          rename("*.mlp.experts.down_proj", "*.mlp.switch_mlp.down_proj.weight")};
}

std::vector<Rule> mtp_rules(const Config&, const Source& source) {
  auto rules = text_side_rules() + std::vector<Rule>{drop("model.*"), drop("lm_head.*")} + layer_rules();
  const auto centred = centred_norm_rules(source);
  if (centred.empty()) return rules;
  for (const char* norm :
       {"mtp.norm.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight"})
    rules.push_back(add_constant(norm, 1.0f));
  return rules + centred;
}

/// A folder with the block alone, as MLX's tools cut it out: names without their prefix, norms already whole.
std::vector<Rule> drafter_rules(const Config&, const Source&) {
  return std::vector<Rule>{rename("mtp.*", "*"), rename("*", "mtp.*")} + layer_rules();
}

std::vector<Rule> weights(const Config& whole, const Source& source) {
  const Config c = text_config(whole);
  // GGUF files number the layers of next-token prediction on.
  auto rules = text_side_rules() + drop_layers("model.layers", c.integer("num_hidden_layers", 1, kMaxLayers),
                                               c.integer("num_nextn_predict_layers", 0, 64, 0));
  rules.push_back(drop("*mtp.*"));
  return rules + layer_rules() + centred_norm_rules(source);
}

}  // namespace

Arch arch_qwen3_5() {
  return {.model_types = {"qwen3_5_text", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text"},
          .gguf = {"qwen35", "qwen35moe"},
          .reference = "transformers Qwen3_5ForCausalLM",
          .build = build,
          .weights = weights,
          .mtp = {.build = mtp,
                  .weights = mtp_rules,
                  .drafters = {"qwen3_5_mtp"},
                  .drafter_weights = drafter_rules},
          .tiny = R"({"model_type": "qwen3_5", "tie_word_embeddings": false, "text_config": {
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "attention_bias": false,
              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
              "layer_types": ["linear_attention", "full_attention", "linear_attention"],
              "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 24,
              "linear_value_head_dim": 64, "linear_conv_kernel_dim": 3, "num_experts": 0}})"};
}

}  // namespace mlxcel
