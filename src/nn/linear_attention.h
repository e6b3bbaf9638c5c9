// Linear attention whose memory fades at a fixed rate for each head: S = e^slope S + v k^T, y = S q, normed
// by groups of the width and opened by a gate. Owner: value. Thread: model thread. Shapes: x [tokens, hidden]
// -> [tokens, hidden]. References: Qin et al. 2024 (Lightning Attention 2); mlx-lm bailing_moe_linear.
#pragma once

#include <optional>
#include <vector>

#include "nn/dims.h"
#include "nn/head_norm.h"
#include "nn/heads.h"
#include "nn/linear.h"
#include "nn/rope.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

/// Slopes as ALiBi spreads them over heads, less steep in later layers; negative.
std::vector<float> fading_slopes(int heads, int layer, int layers);

struct LinearAttentionOptions {
  Rope rope;
  std::optional<HeadNormOptions> qk_norm = {};
  float eps = 1e-6f;
  int groups = 1;  // of the output's norm
  Bias qkv_bias = Bias::as_stored, bias = Bias::as_stored;
  std::vector<float> slopes = {};  // one a head
};

class LinearAttention {
 public:
  /// Reads query_key_value, g_proj, g_norm, dense; q_norm and k_norm where asked for.
  LinearAttention(const Weights& w, const Dims& dims, const LinearAttentionOptions& options);
  array operator()(const array& x, Step& step, const Residual& residual) const;

 private:
  int width_, groups_;
  float eps_;
  Linear qkv_, gate_, out_;
  array norm_weight_, slopes_, zeros_;
  HeadPlan plan_;
  int slot_;
};

}  // namespace mlxcel
