// Gated delta rule mixer: a short convolution over q, k and v, a matrix memory per head that forgets by a
// learned gate and corrects what a key recalled, a gated norm per head. Owner: value. Thread: model thread.
// Shapes: x [tokens, hidden] -> [tokens, hidden]. Reference: transformers Qwen3NextGatedDeltaNet,
// Qwen3_5GatedDeltaNet; Yang et al. 2024.
#pragma once

#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "checkpoint/source.h"
#include "nn/linear.h"
#include "nn/phases.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

struct GatedDeltaOptions {
  int hidden = 0;
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads; consecutive ones share a query and a key
  int key_dim = 0;      // of a head
  int value_dim = 0;
  int taps = 4;
  float eps = 1e-6f;  // of the gated norm
  Activation activation = Activation::silu;
  bool fused = false;  // in_proj_qkvz and in_proj_ba, a run of each key head after another
  bool tiled = false;  // value head i belongs to key head i modulo key_heads (how GGUF files have them)

  /// linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim,
  /// linear_conv_kernel_dim, linear_value_heads_tiled, hidden_act.
  static GatedDeltaOptions from(const Config& config, int hidden, float eps);
};

/// Reads in_proj_qkv, in_proj_z, in_proj_b, in_proj_a (or the fused two), conv1d, dt_bias, A_log, norm,
/// out_proj.
class GatedDeltaMixer {
 public:
  GatedDeltaMixer(const Weights& w, const GatedDeltaOptions& options);
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const;
  bool phases(PhaseList& list) const;

 private:
  struct Streams {
    array qkv, gate, beta, decay;  // [tokens, channels], [tokens, value width], [tokens, value_heads] each
  };
  Streams project(const array& x) const;

  GatedDeltaOptions o_;
  Linear in_, out_;
  array conv_weight_;     // [channels, taps]
  array dt_bias_, rate_;  // [value_heads]
  array norm_weight_;     // [value_dim]
  int conv_slot_, delta_slot_;
};

struct KdaOptions {
  int hidden = 0;
  int heads = 0;
  int head_dim = 0;  // of queries, keys and values
  int taps = 4;
  float eps = 1e-5f;  // of the gated norm
  Activation activation = Activation::silu;
  float lowest = 0.0f;      // not 0: the logarithm of a decay is lowest * sigmoid(e^A (f + dt_bias))
  bool whole_gate = false;  // g_proj in place of g_a_proj and g_b_proj
};

/// The same with a decay for each channel of a key, and sigmoid gates on the normed output (Kimi Delta
/// Attention). Reads q_proj, k_proj, v_proj, b_proj, f_a_proj, f_b_proj, g_a_proj, g_b_proj (or g_proj),
/// q_conv1d, k_conv1d, v_conv1d, dt_bias, A_log, o_norm, o_proj. Reference: transformers
/// KimiLinearDeltaAttention.
class KdaMixer {
 public:
  KdaMixer(const Weights& w, const KdaOptions& options);
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const;
  bool phases(PhaseList& list) const;

 private:
  KdaOptions o_;
  Linear in_, forget_, gate_, out_;  // in_: q, k, v, beta and the two low-rank inputs
  array conv_weight_;                // [channels, taps]
  array dt_bias_, rate_;             // [width], [heads, 1]
  array norm_weight_;                // [head_dim]
  int conv_slot_, delta_slot_;
};

/// x / sqrt(sum x^2 + eps) * scale over the last axis.
array l2_norm(const array& x, float eps, float scale = 1.0f);

/// -e^x of a stored logarithm, on the host; under record() and plan() as it is.
array negative_exp(const array& log);

/// q, k [tokens, heads, key_dim] (normed), v [tokens, heads, value_dim], beta [tokens, heads], decay [tokens,
/// heads] or [tokens, heads, key_dim] (logarithms, at most 0): the memory in `slot` takes them in, and
/// answers the queries.
array delta_rule(const array& q, const array& k, const array& v, const array& beta, const array& log_decay,
                 Step& step, int slot);

/// Published checkpoints of these families keep the norms over the model's width and over heads around zero,
/// MLX's conversions around one: one is added where the convolutions are as published ([channels, 1, taps]).
std::vector<Rule> centred_norm_rules(const Source& source);

}  // namespace mlxcel
