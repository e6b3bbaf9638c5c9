// Ling and Ring, and what was made of them: fused q, k, v; experts by softmax or sigmoid as the config says;
// a head whose columns may be of length one. Thread: the loading thread.
#pragma once

#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "models/arch.h"
#include "models/decoder.h"
#include "nn/weights.h"

namespace mlxcel {

/// What a family assumes where its config is silent, and whether blocks of tokens see each other.
struct BailingForm {
  const char* scores = "softmax";
  bool corrected = false;  // a correction bias of the choice; norms of q and k
  int groups = 1;
  int kept_groups = 1;
  float part = 1.0f;  // of a head that is rotated
  int block = 0;
};

Decoder bailing_decoder(const Config& config, const Weights& w, const BailingForm& form);
std::vector<Rule> bailing_rules(const Config& config);
/// The second generation's block, behind the last layer: one sparse layer. References: inclusionAI's
/// modeling_bailing_moe_v2, sglang's bailing_moe_nextn.
MtpArch bailing_mtp(const BailingForm& form);

}  // namespace mlxcel
