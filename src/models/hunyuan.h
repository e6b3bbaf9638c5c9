// Hunyuan's sparse decoders: norms over heads behind the rotation, whose base an alpha stretches, softmax
// experts whose chosen weights sum to one beside a shared MLP; where the config says so, a layer's keys and
// values are those of an earlier one. Thread: the loading thread.
#pragma once

#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "models/decoder.h"
#include "nn/weights.h"

namespace mlxcel {

/// `tied`: where the config has no tie_word_embeddings.
Decoder hunyuan_decoder(const Config& config, const Weights& w, bool tied);
std::vector<Rule> hunyuan_rules();

}  // namespace mlxcel
