// What DeepSeek-V2 and the texts made of it share. Thread: the loading thread.
#pragma once

#include "checkpoint/config.h"
#include "nn/moe.h"

namespace mlxcel {

/// Softmax over experts, of which the best groups (by their maximum) are eligible. unsupported for a
/// topk_method of another name.
MoeOptions deepseek_v2_experts(const Config& config);

}  // namespace mlxcel
