// Qwen3-Next and what follows it: layers of gated delta rules, among them gated full attention; experts
// beside a gated shared one, or a dense MLP; a block that predicts one token further. Thread: the loading
// thread.
#pragma once

#include <functional>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "models/decoder.h"
#include "models/mtp.h"
#include "nn/delta.h"
#include "nn/moe.h"
#include "nn/weights.h"

namespace mlxcel {

/// Stacked under "switch_mlp"; `per_token` is the family's default.
MoeOptions gated_experts(const Config& config, int per_token);

/// `ffn` gets a layer's number and the scope of its MLP.
using FfnMaker = std::function<Ffn(int layer, const Weights& mlp)>;
Decoder gated_decoder(const Config& config, const Weights& w, const GatedDeltaOptions& delta, bool tied,
                      const FfnMaker& ffn);

/// The block under "mtp": one layer of full attention, its feed-forward made in the scope of its MLP.
MtpBlock gated_mtp(const Config& config, const Weights& w, const std::function<Ffn(const Weights& mlp)>& ffn);
/// `rules`, then its norms and the layers' as parts read them, where they are stored around zero.
std::vector<Rule> gated_mtp_rules(std::vector<Rule> rules, const Source& source);

}  // namespace mlxcel
