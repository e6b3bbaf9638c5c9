// A gated short convolution as a layer's mixer: out(c * conv(b * x)), [b, c, x] = in(h).
// Owner: value. Thread: model thread. Shapes: h [tokens, hidden] -> [tokens, hidden].
// Reference: transformers Lfm2ShortConv.
#pragma once

#include "nn/linear.h"
#include "nn/phases.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

/// Reads in_proj, conv, out_proj; keeps taps - 1 gated inputs (2 to 16 taps).
class ShortConv {
 public:
  ShortConv(const Weights& w, int hidden, int taps, Bias bias);
  array operator()(const array& h, Step& step, const Residual& residual = std::nullopt) const;
  bool phases(PhaseList& list) const;

 private:
  Linear in_, out_;
  array conv_weight_;               // [hidden, taps]
  std::optional<array> conv_bias_;  // [hidden]
  int slot_;
};

}  // namespace mlxcel
