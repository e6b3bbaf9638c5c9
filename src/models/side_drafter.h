// Checkpoints that draft for another model: what a folder holds, and how it is put beside its target.
// Thread: the loading thread. Failure: bad_checkpoint or unsupported naming what does not fit the target.
#pragma once

#include <memory>

#include "checkpoint/config.h"
#include "checkpoint/source.h"
#include "models/assistant.h"
#include "models/model.h"
#include "models/mtp.h"

namespace mlxcel {

enum class DrafterKind { model, mtp, dflash };
const char* to_string(DrafterKind kind);  // "draft", "mtp", "dflash"

/// From its configuration alone: a smaller model, a block of multi-token prediction, a block drafter.
DrafterKind drafter_kind(const Config& config);

/// The target's embedding and head, or those that a block under "mtp" brings.
MtpHead::Shared own_or(MtpHead::Shared target, const Weights& weights);

/// What predicts further from a folder of its own; one of the two.
struct SideMtp {
  std::shared_ptr<const MtpHead> block;            // remembers the row itself
  std::shared_ptr<const AssistantHead> assistant;  // reads what the target remembers
};
/// A block's embedding and head are the target's, unless the folder brings them.
SideMtp load_mtp(const Config& config, std::shared_ptr<Source> source, const Model& target);

}  // namespace mlxcel
