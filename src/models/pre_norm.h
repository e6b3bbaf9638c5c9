// The decoder most families share: an embedding, layers h += mixer(norm(h)); h += ffn(norm(h)), a final norm,
// a head, under the tensor names that Llama gave them. An architecture says what its mixers and feed-forwards
// are. Thread: the loading thread.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/config.h"
#include "models/decoder.h"
#include "nn/weights.h"

namespace mlxcel {

struct PreNormNames {
  std::string embedding = "model.embed_tokens";
  std::string layers = "model.layers";
  std::string mixer_norm = "input_layernorm";
  std::string ffn_norm = "post_attention_layernorm";
  std::string norm = "model.norm";
  std::string head = "lm_head";
};

/// `mixer` and `ffn` get a layer's number and its scope.
struct PreNormParts {
  std::function<Mixer(int, const Weights&)> mixer;
  std::function<Ffn(int, const Weights&)> ffn;
};

/// `eps`: of the RMS norms. `tied`: where the config has no tie_word_embeddings.
Decoder pre_norm_decoder(const Config& config, const Weights& w, const Dims& dims, float eps,
                         const PreNormParts& parts, bool tied = false, const PreNormNames& names = {});

}  // namespace mlxcel
