// Gemma 3n's and 4's attention: norms per head on queries, keys and values, scores as they are, and late
// layers that read the keys and values of an earlier one. Owner: value. Thread: model thread. Shapes: x
// [tokens, hidden] -> [tokens, hidden]. Reference: transformers Gemma3nTextAttention, Gemma4TextAttention.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/config.h"
#include "nn/dims.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

/// The step's keys and values of a layer that others read too. Owner: the layers, together.
struct SharedKeys {
  int slot = -1;
  std::optional<array> k, v;
};

/// Which layers' keys are read by others: those of the last owner of each kind (sliding or full).
struct KeySharing {
  std::vector<std::shared_ptr<SharedKeys>> keys;  // per layer; none where nobody else reads them
  std::shared_ptr<SharedKeys> of(int layer) const { return keys[static_cast<size_t>(layer)]; }
};
/// The first `owners` layers keep keys of their own. bad_checkpoint where a kind has no owner.
KeySharing sharing(const Config& config, const std::vector<bool>& sliding, int owners);

struct SharedAttentionOptions {
  Rope rope;
  float eps = 1e-6f;
  int window = 0;
  bool key_is_value = false;  // no v_proj: the keys, before norm and rotation
  bool owner = true;          // false: `keys` are another layer's
  std::shared_ptr<SharedKeys> keys = {};
  Bias bias = Bias::as_stored;
};

/// Reads q_proj, q_norm, o_proj; an owner also k_proj, k_norm and v_proj.
class SharedAttention {
 public:
  SharedAttention(const Weights& w, const Dims& dims, const SharedAttentionOptions& options);
  array operator()(const array& x, Step& step) const;

 private:
  Dims d_;
  SharedAttentionOptions o_;
  Linear in_, out_;
  RmsNorm q_norm_;
  std::optional<RmsNorm> k_norm_;
  int slot_;
};

}  // namespace mlxcel
