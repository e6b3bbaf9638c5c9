// A router's choice: which experts each token goes to, with which weights, and the sum of what they give.
// Each is one node on CPU; the twins are plain MLX operations. A token's result does not depend on its
// neighbours. Thread: model thread (graph building). References: transformers' routers (Qwen3Moe, DeepseekV2,
// DeepseekV3, GptOss, Mixtral).
#pragma once

#include <optional>
#include <utility>

#include "tensor/tensor.h"

namespace mlxcel::kernels {

enum class Scoring {
  softmax,         // over all experts, then the best are chosen
  chosen_softmax,  // the best logits are chosen, then a softmax over them
  sigmoid,
  sqrt_softplus,
};

enum class GroupScore { best, best_two };  // what a group of experts is worth: its maximum, or the sum of two

struct RouteForm {
  int per_token = 1;
  Scoring scoring = Scoring::softmax;
  int groups = 1;  // only experts of the best `kept_groups` groups are eligible
  int kept_groups = 1;
  GroupScore group_score = GroupScore::best_two;
  bool renormalize = false;   // weights are divided by their sum
  float renorm_eps = 0.0f;    // added to it
  float renorm_floor = 0.0f;  // the least that divides
  float scale = 1.0f;         // of the weights, last
};

/// logits [tokens, experts]; correction [experts], added to the scores for the choice alone -> experts
/// [tokens, per_token] int32, best first, the lower number first among equals; weights [tokens, per_token].
std::pair<array, array> route(const array& logits, const std::optional<array>& correction,
                              const RouteForm& form);

/// y [tokens, k, width], weights [tokens, k] -> residual + sum over k, in order: [tokens, width].
array weighted_sum(const array& y, const array& weights, const std::optional<array>& residual = std::nullopt);

}  // namespace mlxcel::kernels
