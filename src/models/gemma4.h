// Gemma 4's decoder, which its diffusion model shares. Thread: the loading thread.
#pragma once

#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "models/decoder.h"
#include "nn/dims.h"
#include "nn/rope.h"
#include "nn/weights.h"

namespace mlxcel {

struct Gemma4Kind {
  /// DiffusionGemma: drafts of tokens that see each other, read through a view of the draft before; experts
  /// in every layer, full layers without values of their own.
  bool drafts = false;
};

/// `whole`: the config, or a wrapper's around it.
Decoder gemma4_decoder(const Config& whole, const Weights& w, const Gemma4Kind& kind = {});

/// Which layers slide. The last one never does, whatever the config says.
std::vector<bool> gemma4_sliding(const Config& text, int layers);

/// The two kinds of layers: their heads, and how they rotate.
struct Gemma4Heads {
  Dims sliding, full;
  Rope local, global;
  const Dims& dims(bool slides) const { return slides ? sliding : full; }
  const Rope& rope(bool slides) const { return slides ? local : global; }
};
Gemma4Heads gemma4_heads(const Config& text, bool key_is_value);

/// To the names that it asks for.
std::vector<Rule> gemma4_rules();

}  // namespace mlxcel
