// Sparse mixture of experts: each token picks its experts; their weighted outputs are summed per token, and
// shared experts that every token passes may stand beside them.
// Owner: value. Thread: model thread. Shapes: x [tokens, hidden] -> [tokens, hidden].
// References: transformers' MoE blocks (Qwen3Moe, DeepseekV2, DeepseekV3, GptOss, Llama4, LongcatFlash).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "kernels/route.h"
#include "nn/glu.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/weights.h"

namespace mlxcel {

using kernels::GroupScore;
using kernels::Scoring;

enum class SharedMix {
  sum,          // routed + shared
  gated,        // routed + sigmoid(gate(x)) shared
  coefficient,  // c[0] routed + c[1] shared, c = softmax(gate(x))
  average,      // (routed + shared) / 2
};

struct SharedExperts {
  int width = 0;  // 0: none
  SharedMix mix = SharedMix::sum;
  std::string name = "shared_experts";
  std::string gate = {};  // gated: "<gate>.weight" [1, hidden]; coefficient: [2, hidden] and a bias
  std::optional<ClampedGlu> clamp = {};
  bool gated = true;  // false: down(activation(up(x)))
  Bias bias = Bias::as_stored;
};

/// Experts that read and give fewer features than the model has.
struct LatentExperts {
  int width = 0;  // 0: the model's own
  std::string into = "routed_expert_down_proj", back = "routed_expert_up_proj";
  std::string norm = {};  // of what they give, if any
  float eps = 1e-5f;
  Bias bias = Bias::none;  // of both
};

struct MoeOptions {
  int experts = 0;
  int per_token = 0;
  int width = 0;             // of each expert
  bool renormalize = false;  // the chosen weights sum to one
  Activation activation = Activation::silu;
  std::string router = "gate";   // empty: none, the choice is made elsewhere
  std::string bank = "experts";  // stacked: "<bank>.gate_proj.weight" [experts, width, hidden], …

  Scoring scoring = Scoring::softmax;
  Bias router_bias = Bias::none;
  float router_cap = 0.0f;      // 0: none; else logits are cap * tanh(logits / cap)
  std::string correction = {};  // a value per expert that takes part in the choice, not in the weights
  float renorm_eps = 0.0f;      // added to the sum that divides
  float renorm_floor = 0.0f;    // the least that divides
  float scale = 1.0f;           // of the weights
  int groups = 1;               // only the best `kept_groups` groups of experts are eligible
  int kept_groups = 1;
  GroupScore group_score = GroupScore::best_two;
  int zero_experts = 0;       // further experts that give their input back
  bool weighs_input = false;  // the weight multiplies what an expert reads, not what it gives

  bool gated = true;  // false: down(activation(up(x)))
  Bias expert_bias = Bias::none;
  std::optional<ClampedGlu> clamp = {};  // in place of activation(gate) * up
  SharedExperts shared = {};
  LatentExperts latent = {};

  /// Sigmoid scores with a correction bias and groups, as configs of DeepSeek-V3's line spell them:
  /// n_routed_experts (num_experts), num_experts_per_tok, moe_intermediate_size, n_shared_experts
  /// (num_shared_experts), n_group, topk_group, norm_topk_prob, routed_scaling_factor, hidden_act. Stacked
  /// experts stand under "switch_mlp".
  static MoeOptions grouped(const Config& config, int default_groups = 1, int default_kept = 1);
};

/// How to make those banks of numbered experts.
std::vector<Rule> stack_experts();

/// Dense are the layers that mlp_layer_types calls so; without that list those before first_k_dense_replace
/// and those that moe_layer_freq skips.
bool is_sparse(const Config& config, int layer, int layers, int first_default = 0);

struct ExpertChoice;  // nn/expert_phases.h

class ExpertRouter {
 public:
  ExpertRouter(const Weights& w, int hidden, const MoeOptions& options);
  /// Experts [tokens, per_token] int32, and their weights.
  std::pair<array, array> operator()(const array& x) const;
  /// The same as phases, of the list's value, which stays; a norm before it is done. None: it cannot be said.
  std::shared_ptr<ExpertChoice> choose(PhaseList& list) const;

 private:
  kernels::RouteForm form() const;

  Linear gate_;
  std::optional<array> correction_;
  MoeOptions o_;
};

class SparseMoe {
 public:
  SparseMoe(const Weights& w, int hidden, const MoeOptions& options);
  array operator()(const array& x, const Residual& residual = std::nullopt) const;
  bool phases(PhaseList& list) const;
  /// The same with a choice made elsewhere.
  array with(const array& x, const array& chosen, const array& weights, const Residual& residual) const;

 private:
  array experts(const array& x, const array& chosen) const;
  array routed(const array& x, array chosen, array weights) const;
  array joined(const array& x, const array& routed, const Residual& residual) const;
  array shared(const array& x, const Residual& residual = std::nullopt) const;
  bool has_shared() const { return shared_ || plain_shared_; }

  MoeOptions o_;
  std::optional<ExpertRouter> router_;
  GatedLinear gate_up_;  // gated, no biases, no clamp
  Linear up_, down_;     // up_: up alone, or gate then up
  std::optional<GatedMlp> shared_;
  std::optional<Mlp> plain_shared_;
  Linear shared_gate_;
  std::optional<Linear> into_, back_;
  std::optional<RmsNorm> latent_norm_;
};

/// Experts in sparse layers, the usual MLP of intermediate_size in dense ones, under `mlp`.
std::variant<SparseMoe, GatedMlp> sparse_or_dense(const Weights& mlp, const Config& config, int hidden,
                                                  const MoeOptions& moe, bool sparse);

}  // namespace mlxcel
