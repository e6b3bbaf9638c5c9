// Qwen3-Next: gated delta layers, every fourth a gated full attention; experts beside a gated shared one.
// Reference: transformers Qwen3NextForCausalLM.
#include <algorithm>

#include "models/kit.h"
#include "nn/delta.h"
#include "nn/gated_attention.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 10);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth, 512);
  moe.renormalize = c.get("norm_topk_prob", true);
  moe.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  moe.bank = "switch_mlp";
  moe.shared = {.width = c.integer("shared_expert_intermediate_size", 1, kMaxWidth, 512),
                .mix = SharedMix::gated,
                .name = "shared_expert",
                .gate = "shared_expert_gate"};
  return moe;
}

bool is_sparse(const Config& c, int layer) {
  for (const int dense : c.get<std::vector<int>>("mlp_only_layers", {}))
    if (dense == layer) return false;
  return c.integer("num_experts", 0, 4096, 512) > 0 &&
         (layer + 1) % c.integer("decoder_sparse_step", 1, kMaxLayers, 1) == 0;
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

Decoder build(const Config& c, const Weights& w) {
  const Dims d = dims(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  auto delta = GatedDeltaOptions::from(c, d.hidden, eps);
  const auto full = full_attention_layers(c, d.layers);
  // GGUF files hold q, k, v and z apart.
  const auto linear = std::find(full.begin(), full.end(), false);
  delta.fused = linear == full.end() ||
                !w.has(fmt::format("model.layers.{}.linear_attn.in_proj_qkv.weight", linear - full.begin()));
  const auto attention = full_attention(c, d, eps);
  const auto mixer = [&](int i, const Weights& layer) {
    return full[static_cast<size_t>(i)] ? Mixer(GatedAttention(layer / "self_attn", d, attention))
                                        : Mixer(GatedDeltaMixer(layer / "linear_attn", delta));
  };
  const auto ffn = [&](int i, const Weights& mlp) {
    if (is_sparse(c, i)) return Ffn(SparseMoe(mlp, d.hidden, experts(c)));
    return Ffn(GatedMlp(mlp, d.hidden, c.integer("intermediate_size", 1, kMaxWidth), delta.activation));
  };

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                      .mixer = mixer(i, layer),
                      .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                      .ffn = ffn(i, layer / "mlp")});
  model.finish(w.rms_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  return model;
}

std::vector<Rule> weights(const Config& c, const Source& source) {
  // GGUF files number the layers of next-token prediction on.
  auto rules = drop_layers("model.layers", c.integer("num_hidden_layers", 1, kMaxLayers),
                           c.integer("num_nextn_predict_layers", 0, 64, 0)) +
               std::vector<Rule>{drop("mtp.*"), drop("model.mtp.*")} + stack_experts();
  const auto names = source.names();
  if (std::any_of(names.begin(), names.end(),
                  [](const auto& n) { return n.ends_with(".in_proj_qkv.weight"); })) {
    const auto delta = GatedDeltaOptions::from(c, 1, 1e-6f);
    rules.push_back(split("*.linear_attn.in_proj_ba.weight",
                          {"*.linear_attn.in_proj_b.weight", "*.linear_attn.in_proj_a.weight"},
                          {delta.value_heads, delta.value_heads}, delta.key_heads));
  }
  for (Rule& rule : centred_norm_rules(source)) rules.push_back(std::move(rule));
  return rules;
}

MtpBlock mtp(const Config& c, const Weights& w) {
  const Dims d = dims(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const Weights own = w / "mtp", layer = own / "layers.0";
  return qwen_mtp(own, d.hidden, eps,
                  {PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                           .mixer = GatedAttention(layer / "self_attn", d, full_attention(c, d, eps)),
                           .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                           .ffn = SparseMoe(layer / "mlp", d.hidden, experts(c))}});
}

std::vector<Rule> mtp_rules(const Config&, const Source& source) {
  auto rules = std::vector<Rule>{rename("model.mtp.*", "mtp.*")} + mtp_rules_of("mtp.") + stack_experts();
  const auto centred = centred_norm_rules(source);
  if (centred.empty()) return rules;
  for (const char* norm :
       {"mtp.norm.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight"})
    rules.push_back(add_constant(norm, 1.0f));
  return rules + centred;
}

}  // namespace

Arch arch_qwen3_next() {
  return {
      .model_types = {"qwen3_next", "qwen3next"},
      .gguf = {"qwen3next"},
      .reference = "transformers Qwen3NextForCausalLM",
      .build = build,
      .weights = weights,
      .mtp = {.build = mtp, .weights = mtp_rules},
      .tiny = R"({"model_type": "qwen3_next", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "attention_bias": true,
              "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "full_attention_interval": 2,
              "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 20,
              "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
              "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": true,
              "shared_expert_intermediate_size": 64, "decoder_sparse_step": 1, "mlp_only_layers": [1],
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
