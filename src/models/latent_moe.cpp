#include "models/latent_moe.h"

#include "models/kit.h"

namespace mlxcel {

Decoder latent_moe_decoder(const Config& c, const Weights& w, const LatentMoeDefaults& defaults,
                           const LatentMixer& mixer) {
  const auto d = mla_dims(c);
  const float eps = epsilon(c, "rms_norm_eps", defaults.eps);
  const auto moe = MoeOptions::grouped(c, defaults.groups, defaults.kept_groups);
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

std::vector<Rule> latent_moe_rules(const Config& c) {
  const auto d = mla_dims(c);
  const auto mla = MlaOptions::from(c, d);
  return drop_layers("model.layers", d.layers, c.integer("num_nextn_predict_layers", 0, 64, 1)) +
         stack_experts() + heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
}

}  // namespace mlxcel
