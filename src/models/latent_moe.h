// DeepSeek-V3's line: latent attention, sigmoid experts chosen with a correction bias from the best groups,
// some dense layers first. An architecture says what its publisher assumes, and may bring a mixer of its own.
// Thread: the loading thread.
#pragma once

#include <functional>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "models/arch.h"
#include "models/decoder.h"
#include "nn/mla.h"
#include "nn/weights.h"

namespace mlxcel {

/// Where the config is silent.
struct LatentMoeDefaults {
  float eps = 1e-6f;
  int groups = 8;
  int kept_groups = 4;
  int dense_layers = 3;
  float scale = 2.5f;  // routed_scaling_factor
};

/// Layer `i`'s attention in its scope ("self_attn").
using LatentMixer = std::function<Mixer(int i, const Weights& attention, const MlaOptions& options)>;

Decoder latent_moe_decoder(const Config& config, const Weights& w, const LatentMoeDefaults& defaults,
                           const LatentMixer& mixer = {});

/// The line's block that predicts further: one layer more, which is sparse. `mixer`: as above, of layer 0.
MtpArch latent_mtp(const LatentMoeDefaults& defaults, LatentMixer (*mixer)(const Config&) = nullptr);

/// Published names: experts by number, one matrix for keys and values, prediction layers behind the last.
std::vector<Rule> latent_moe_rules(const Config& config);

}  // namespace mlxcel
