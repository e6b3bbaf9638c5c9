// Attention over a row's past: projections, norms per head, rotation, then the state's attend().
// Owner: value. Thread: model thread. Shapes: x [tokens, hidden] -> [tokens, hidden].
#pragma once

#include <optional>
#include <string>

#include "nn/dims.h"
#include "nn/heads.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/phases.h"
#include "nn/rope.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

struct HeadNormOptions {
  float eps = 1e-6f;
  float offset = 0.0f;
};

struct AttentionOptions {
  std::optional<Rope> rope = {};                // none: positions come from elsewhere, or not at all
  std::optional<HeadNormOptions> qk_norm = {};  // RMS over each head of q and k, before the rotation
  int window = 0;                               // 0: all tokens; W: query i sees keys i-W+1 … i
  float scale = 0.0f;                           // of the scores; 0: 1 / sqrt(head_dim)
  float softcap = 0.0f;                         // 0: none
  bool sinks = false;                           // learned logit per head, "sinks"
  Bias qkv_bias = Bias::as_stored;
  Bias out_bias = Bias::as_stored;
  std::string fused = {};  // name of one projection that holds q, k, v in this order
  std::string out = "o_proj";
};

class Attention {
 public:
  Attention(const Weights& w, const Dims& dims, const AttentionOptions& options);
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const;
  bool phases(PhaseList& list) const;

 private:
  Linear qkv_, out_;
  HeadPlan plan_;
  std::optional<array> sinks_;
  int slot_;
  float scale_, softcap_;
};

struct EncoderAttentionNames {
  std::string query = "self.query", key = "self.key", value = "self.value", out = "output.dense";
};

/// The same without memory: each row's tokens see each other.
class EncoderAttention {
 public:
  EncoderAttention(const Weights& w, const Dims& dims, Bias bias = Bias::required,
                   const EncoderAttentionNames& names = {});
  array operator()(const array& x, const Step& step, const Residual& residual = std::nullopt) const;

 private:
  Linear qkv_, out_;
  HeadPlan plan_;
};

}  // namespace mlxcel
