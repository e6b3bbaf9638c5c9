// Adapters fitted to a model's weights: through the rules when they name a checkpoint's own tensors, directly
// when they name those that the rules make (mlx-lm's switch_mlp). Thread: any; plain memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/adapter_files.h"
#include "checkpoint/source.h"
#include "models/model.h"
#include "nn/adapter.h"

namespace mlxcel {

/// An adapter's pairs in the form in which the model of this configuration is published (GGUF adapters
/// differ).
AdapterFiles settled(const Config& config, AdapterFiles files);
/// What `files` add to a weight of `source`, which has seen the rules.
std::optional<LowRank> fitted(const Source& source, const AdapterFiles& files, const std::string& weight,
                              const Shape& shape);
/// bad_checkpoint naming the pairs that fitted() did not come by.
void refuse_unused(const AdapterFiles& files);
/// unsupported where `files` add to a table that is a head too, and not to that head: fused they would.
void refuse_shared_tables(const AdapterBook& book, const AdapterFiles& files);
/// bad_checkpoint unless the base weights that the files repeat are the model's own.
void check_copies(Source& source, const AdapterFiles& files);
/// The source with the adapters' products added to its weights; those become dense, in their own type or that
/// of their scales.
std::shared_ptr<Source> fused(std::shared_ptr<Source> source, const std::vector<FusedAdapter>& adapters);

}  // namespace mlxcel
