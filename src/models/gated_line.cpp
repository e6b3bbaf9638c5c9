#include "models/gated_line.h"

#include <utility>

#include "models/kit.h"
#include "nn/gated_attention.h"

namespace mlxcel {

namespace {

Dims gated_dims(const Config& c) {
  const bool first = c.get<std::string>("model_type", "").starts_with("qwen3_next");
  return Dims::from(c, {.kv_heads = first ? 2 : 4, .head_dim = 256});
}

GatedAttentionOptions full_attention(const Config& c, const Dims& d, float eps) {
  return {
      .rope = Rope::from(c, d, {.part = 0.25f}), .eps = eps, .bias = bias_if(c.get("attention_bias", false))};
}

}  // namespace

MoeOptions gated_experts(const Config& c, int per_token) {
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, per_token);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth, 512);
  moe.renormalize = true;
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.bank = "switch_mlp";
  moe.shared = {.width = c.integer("shared_expert_intermediate_size", 1, kMaxWidth, 512),
                .mix = SharedMix::gated,
                .name = "shared_expert",
                .gate = "shared_expert_gate"};
  return moe;
}

Decoder gated_decoder(const Config& c, const Weights& w, const GatedDeltaOptions& delta, bool tied,
                      const FfnMaker& ffn) {
  const Dims d = gated_dims(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto full = full_attention_layers(c, d.layers);
  const auto attention = full_attention(c, d, eps);
  const auto mixer = [&](int i, const Weights& layer) {
    return full[static_cast<size_t>(i)] ? Mixer(GatedAttention(layer / "self_attn", d, attention))
                                        : Mixer(GatedDeltaMixer(layer / "linear_attn", delta));
  };
  const auto norm = rms_norms(d.hidden, eps);
  return standard_decoder(w, d, norm, {.tie = tie_if(tied)}, [&](int i, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = mixer(i, layer),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = ffn(i, layer / "mlp")};
  });
}

MtpBlock gated_mtp(const Config& c, const Weights& w, const std::function<Ffn(const Weights& mlp)>& ffn) {
  const Dims d = gated_dims(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const Weights own = w / "mtp", layer = own / "layers.0";
  return qwen_mtp(own, d.hidden, eps,
                  {PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                           .mixer = GatedAttention(layer / "self_attn", d, full_attention(c, d, eps)),
                           .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                           .ffn = ffn(layer / "mlp")}});
}

std::vector<Rule> gated_mtp_rules(std::vector<Rule> rules, const Source& source) {
  auto centred = centred_norm_rules(source);
  if (centred.empty()) return rules;
  for (const char* norm :
       {"mtp.norm.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight"})
    rules.push_back(add_constant(norm, 1.0f));
  return std::move(rules) + std::move(centred);
}

}  // namespace mlxcel
