#include "models/latent_moe.h"

#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c, const LatentMoeDefaults& defaults) {
  auto moe = MoeOptions::grouped(c, defaults.groups, defaults.kept_groups);
  moe.scale = c.get("routed_scaling_factor", defaults.scale);
  return moe;
}

}  // namespace

Decoder latent_moe_decoder(const Config& c, const Weights& w, const LatentMoeDefaults& defaults,
                           const LatentMixer& mixer) {
  const auto d = mla_dims(c);
  const float eps = epsilon(c, "rms_norm_eps", defaults.eps);
  const auto moe = experts(c, defaults);
  const auto mla = MlaOptions::from(c, d);
  const auto attention = [&](int i, const Weights& layer) {
    const Weights scope = layer / "self_attn";
    return mixer ? mixer(i, scope, mla) : Mixer(Mla(scope, mla));
  };
  const auto ffn = [&](int i, const Weights& layer) {
    return sparse_or_dense(layer / "mlp", c, d.hidden, moe, is_sparse(c, i, d.layers, defaults.dense_layers));
  };
  return pre_norm_decoder(c, w, d, eps, {.mixer = attention, .ffn = ffn});
}

MtpArch latent_mtp(const LatentMoeDefaults& defaults, LatentMixer (*mixer)(const Config&)) {
  const auto build = [=](const Config& c, const Weights& w) {
    const auto d = mla_dims(c);
    const float eps = epsilon(c, "rms_norm_eps", defaults.eps);
    const auto mla = MlaOptions::from(c, d);
    const Weights own = w / "mtp", attention = own / "self_attn";
    const auto moe = experts(c, defaults);
    return deepseek_mtp(own, d.hidden, eps,
                        {PreNorm{.mixer_norm = own.rms_norm("input_layernorm", d.hidden, eps),
                                 .mixer = mixer ? mixer(c)(0, attention, mla) : Mixer(Mla(attention, mla)),
                                 .ffn_norm = own.rms_norm("post_attention_layernorm", d.hidden, eps),
                                 .ffn = SparseMoe(own / "mlp", d.hidden, moe)}});
  };
  const auto stacked = [](const Config& c) {
    const auto mla = MlaOptions::from(c, mla_dims(c));
    return stack_experts() + heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
  };
  return {.build = build,
          .weights = [=](const Config& c,
                         const Source&) { return mtp_layer_rules(mla_dims(c).layers) + stacked(c); },
          .drafters = {},
          .drafter_weights =
              [=](const Config& c, const Source&) {
                return std::vector<Rule>{rename("model.mtp_block.*", "mtp.*"),
                                         rename("model.shared_head_norm.*", "mtp.shared_head.norm.*"),
                                         rename("lm_head.*", "mtp.shared_head.head.*"),
                                         rename("model.*", "mtp.*")} +
                       stacked(c);
              }};
}

std::vector<Rule> latent_moe_rules(const Config& c) {
  const auto d = mla_dims(c);
  const auto mla = MlaOptions::from(c, d);
  return drop_layers("model.layers", d.layers, c.integer("num_nextn_predict_layers", 0, 64, 1)) +
         stack_experts() + heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
}

}  // namespace mlxcel
