// Attention over a row's past: projections, norms per head, rotation, then the state's attend().
// Owner: value. Thread: model thread. Shapes: x [tokens, hidden] -> [tokens, hidden].
#pragma once

#include <optional>
#include <string>

#include "nn/dims.h"
#include "nn/head_norm.h"
#include "nn/heads.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/phases.h"
#include "nn/rope.h"
#include "nn/weights.h"
#include "state/attend.h"
#include "state/step.h"

namespace mlxcel {

/// Queries times 1 + factor * ln(1 + floor((position + shift) / length)): sharper scores far from the start.
struct QueryTemperature {
  float factor = 0.1f;
  int length = 8192;
  int shift = 0;
};

/// [tokens, 1]: the factor of each token's queries.
array warmth(const Step& step, const QueryTemperature& temperature);

/// q [tokens, heads, width] times its factor.
array warmed(const array& q, const Step& step, const QueryTemperature& temperature);

/// What attention gives, times sigmoid(name(x)): one value for each entry of a head, or for each head.
struct OutputGate {
  std::string name = "gate_proj";
  bool per_head = false;
  bool softplus = false;  // in place of the sigmoid
};

/// An RMS norm over what all heads give, before the output projection.
struct OutNorm {
  std::string name;
  float eps = 1e-6f;
};

struct AttentionOptions {
  std::optional<Rope> rope = {};                // none: positions come from elsewhere, or not at all
  std::optional<HeadNormOptions> qk_norm = {};  // of q and k: "q_norm", "k_norm"
  int window = 0;                               // 0: all tokens; W: query i sees keys i-W+1 … i
  int chunk = 0;                                // 0: none; C: query i sees keys i - i % C … i
  int block = 0;                                // 0: none; B: blocks of B tokens see each other
  float scale = 0.0f;                           // of the scores; 0: 1 / sqrt(head_dim)
  float softcap = 0.0f;                         // 0: none
  bool sinks = false;                           // learned logit per head, "sinks"
  float clip = 0.0f;                            // 0: none; else q, k and v are kept within ±clip
  std::optional<QueryTemperature> temperature = {};
  std::optional<OutputGate> gate = {};
  std::optional<OutNorm> out_norm = {};
  bool tiled = false;  // query head i reads kv head i % kv_heads instead of i / (heads / kv_heads)
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
  Heads heads(const array& x, Step& step) const;
  array gated(const array& seen, const array& x) const;

  Linear qkv_, out_;
  HeadPlan plan_;  // without the norms below, and without the rotation where they come first
  std::optional<HeadNorm> q_norm_, k_norm_;
  std::optional<Rope> later_rope_;
  std::optional<array> sinks_;
  std::optional<QueryTemperature> temperature_;
  std::optional<Linear> gate_;
  std::optional<RmsNorm> out_norm_;
  bool softplus_ = false, tiled_ = false;
  std::optional<int> slot_;  // none: rows keep nothing
  Sight sight_;
  float scale_, softcap_, clip_;
  bool blocks_;
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
