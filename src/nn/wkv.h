// RWKV-7's two sublayers: each mixes a token with the one before it; the first remembers by a matrix per head
// that decays, is corrected and written to by channel, and reads the first layer's values beside its own.
// Owner: value. Thread: model thread. Shapes: x [tokens, hidden] -> [tokens, hidden]. Reference: Peng et al.
// 2025; mlx-lm rwkv7.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nn/linear.h"
#include "nn/weights.h"
#include "state/step.h"
#include "tensor/tensor.h"

namespace mlxcel {

/// Each row's tokens one later; the row's last one is kept for the next step.
class TokenShift {
 public:
  TokenShift(const Weights& w, int hidden);
  array operator()(const array& x, Step& step) const;

 private:
  std::optional<array> taps_;
  int slot_;
};

/// out(activation(in(x))), narrow in the middle.
struct NarrowPair {
  Linear in, out;
  Activation activation;
  array operator()(const array& x) const;
};

struct TimeMixingSizes {
  int hidden = 0, heads = 0, head_dim = 0;
  int decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;
};

class TimeMixing {
 public:
  /// `values`: the first layer's, of this step; all layers share them, the first one writes them.
  TimeMixing(const Weights& w, const TimeMixingSizes& sizes, bool first,
             std::shared_ptr<std::optional<array>> values);
  array operator()(const array& x, Step& step, const Residual& residual) const;

 private:
  TimeMixingSizes s_;
  TokenShift shift_;
  Linear r_, k_, v_, out_;
  NarrowPair decay_, rate_, gate_;
  std::optional<NarrowPair> blend_;
  array k_k_, k_a_, r_k_, norm_weight_, norm_bias_;
  std::vector<array> mix_;
  int slot_;
  std::shared_ptr<std::optional<array>> values_;
};

class ChannelMixing {
 public:
  ChannelMixing(const Weights& w, int hidden, int width);
  array operator()(const array& x, Step& step, const Residual& residual) const;

 private:
  TokenShift shift_;
  array mix_;
  Linear key_, value_;
};

}  // namespace mlxcel
