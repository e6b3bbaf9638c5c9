// Several residual streams in place of one (manifold-constrained hyper-connections): each sublayer reads a
// weighed sum of them; what it gives is dealt out to all of them, which are mixed among themselves by a
// matrix whose rows and columns add up to one. Owner: value. Thread: model thread. Shapes: streams [tokens,
// count * hidden], one after another. References: Xie et al. 2026, transformers DeepseekV4HyperConnection.
#pragma once

#include <functional>
#include <string>

#include "nn/linear.h"
#include "nn/weights.h"
#include "tensor/tensor.h"

namespace mlxcel {

struct StreamOptions {
  int count = 4;
  int hidden = 0;
  int rounds = 20;    // of making rows and columns add up to one, by turns
  float eps = 1e-6f;  // kept away from zero by it
  float norm_eps = 1e-6f;
};

/// The same vector in every stream: [tokens, hidden] -> [tokens, count * hidden].
array spread_streams(const array& x, int count);

/// streams -> streams, around a sublayer [tokens, hidden] -> [tokens, hidden]. Reads fn [(2 + count) * count,
/// count * hidden], base and scale [3].
class StreamMix {
 public:
  StreamMix(const Weights& w, const StreamOptions& options);
  array operator()(const array& streams, const std::function<array(const array&)>& sublayer) const;

 private:
  StreamOptions o_;
  Linear fn_;
  array base_, scale_;
};

/// streams -> [tokens, hidden]. Reads hc_fn [count, count * hidden], hc_base, hc_scale [1].
class StreamSum {
 public:
  StreamSum(const Weights& w, const StreamOptions& options);
  array operator()(const array& streams) const;

 private:
  StreamOptions o_;
  Linear fn_;
  array base_, scale_;
};

}  // namespace mlxcel
