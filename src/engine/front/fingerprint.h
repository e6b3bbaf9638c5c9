// What a kept prefix on disk depends on, as one digest: files, types, layout, the engine's numerics
// (features.md 3.2). Thread: any. Failure: not_found, internal as the files'.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "models/model.h"

namespace mlxcel {

/// Small files (configuration, tokenizer, template) count whole; of each weight file its name, size and 64
/// blocks. `kv`: the formats of keys and values; `edits`: what was done to the weights beyond their files.
std::string model_fingerprint(const Checkpoint& checkpoint, const ModelInfo& info, const StateLayout& layout,
                              const std::vector<KvFormat>& kv, const std::string& edits);

}  // namespace mlxcel
