// GLM-4 of 2024 and GLM-4-0414: half of each head rotated in adjacent pairs; the later one has norms around
// every sublayer. Thread: the loading thread.
#pragma once

#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "models/decoder.h"
#include "nn/weights.h"

namespace mlxcel {

enum class GlmNorms { before, around };

Decoder glm_decoder(const Config& config, const Weights& w, GlmNorms norms);

/// Gate and up are published as one matrix.
std::vector<Rule> glm_rules();

}  // namespace mlxcel
