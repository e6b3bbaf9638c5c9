// Gemma 4's decoder, which its diffusion model shares. Thread: the loading thread.
#pragma once

#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "models/decoder.h"
#include "nn/weights.h"

namespace mlxcel {

struct Gemma4Kind {
  /// DiffusionGemma: drafts of tokens that see each other, read through a view of the draft before; experts
  /// in every layer, full layers without values of their own.
  bool drafts = false;
};

/// `whole`: the config, or a wrapper's around it.
Decoder gemma4_decoder(const Config& whole, const Weights& w, const Gemma4Kind& kind = {});

/// To the names that it asks for.
std::vector<Rule> gemma4_rules();

}  // namespace mlxcel
