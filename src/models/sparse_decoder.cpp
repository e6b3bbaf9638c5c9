#include "models/sparse_decoder.h"

#include "models/kit.h"

namespace mlxcel {

Decoder sparse_decoder(const Config& c, const Weights& w, const Dims& d, float eps,
                       const SparseParts& parts) {
  const auto mixer = [&](int i, const Weights& layer) {
    return Attention(layer / "self_attn", d, parts.attention(i));
  };
  const auto ffn = [&](int i, const Weights& layer) {
    return sparse_or_dense(layer / "mlp", c, d.hidden, parts.experts, !parts.sparse || parts.sparse(i));
  };
  return pre_norm_decoder(c, w, d, eps, {.mixer = mixer, .ffn = ffn});
}

bool is_sparse_by_step(const Config& c, int layer) {
  for (const int dense : c.get<std::vector<int>>("mlp_only_layers", {}))
    if (dense == layer) return false;
  return (layer + 1) % c.integer("decoder_sparse_step", 1, kMaxLayers, 1) == 0;
}

}  // namespace mlxcel
