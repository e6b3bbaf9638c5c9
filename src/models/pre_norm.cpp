#include "models/pre_norm.h"

namespace mlxcel {

Decoder pre_norm_decoder(const Config& config, const Weights& w, const Dims& dims, float eps,
                         const PreNormParts& parts, bool tied, const PreNormNames& names) {
  Decoder model(dims, w.embedding(names.embedding, dims.vocab, dims.hidden));
  for (const auto& [i, layer] : w.layers(names.layers, dims.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm(names.mixer_norm, dims.hidden, eps),
                      .mixer = parts.mixer(i, layer),
                      .ffn_norm = layer.rms_norm(names.ffn_norm, dims.hidden, eps),
                      .ffn = parts.ffn(i, layer)});
  model.finish(w.rms_norm(names.norm, dims.hidden, eps),
               make_head(w, names.head, names.embedding, model.embedding(),
                         tie_if(config.get("tie_word_embeddings", tied))));
  return model;
}

}  // namespace mlxcel
