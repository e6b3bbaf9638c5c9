// Attention whose queries see keys that their places choose (blocks, a prompt and a window), the same for all
// layers that share the choice. Owner: value. Thread: model thread. Shapes: x [tokens, hidden] -> [tokens,
// hidden].
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "nn/dims.h"
#include "nn/heads.h"
#include "nn/linear.h"
#include "nn/rope.h"
#include "nn/weights.h"
#include "state/attend.h"
#include "state/step.h"

namespace mlxcel {

/// A step's choice of keys: none where all are seen.
struct PlaceChoice {
  std::function<std::optional<KeyChoice>(const Step&)> choose;
  std::optional<KeyChoice> now = {};
};

struct PlacedAttentionOptions {
  Rope rope;
  float scale = 0.0f;                        // of the scores; 0: 1 / sqrt(head_dim)
  std::shared_ptr<PlaceChoice> choice = {};  // none: all keys
  bool chooses = false;                      // the first of the layers that share it
  std::string out = "o_proj";
};

class PlacedAttention {
 public:
  /// Reads q_proj, k_proj, v_proj and `out`.
  PlacedAttention(const Weights& w, const Dims& dims, const PlacedAttentionOptions& options);
  array operator()(const array& x, Step& step, const Residual& residual) const;

 private:
  HeadPlan plan_;
  Linear qkv_, out_;
  int slot_;
  float scale_;
  std::shared_ptr<PlaceChoice> choice_;
  bool chooses_;
};

}  // namespace mlxcel
