// Decoders of the usual names whose layers are Attention under "self_attn" and, under "mlp", experts or the
// dense MLP of intermediate_size. Thread: the loading thread.
#pragma once

#include <functional>

#include "models/decoder.h"
#include "nn/attention.h"
#include "nn/moe.h"

namespace mlxcel {

struct SparseParts {
  std::function<AttentionOptions(int layer)> attention;
  MoeOptions experts;
  std::function<bool(int layer)> sparse = {};  // none: every layer has experts
};

/// `eps`: of the norms around the parts.
Decoder sparse_decoder(const Config& config, const Weights& w, const Dims& dims, float eps,
                       const SparseParts& parts);

/// Qwen's keys: layers that mlp_only_layers names are dense, of the others every decoder_sparse_step-th is
/// sparse.
bool is_sparse_by_step(const Config& config, int layer);

}  // namespace mlxcel
