// Several residual streams of which a layer computes one: the others are predicted before it and corrected by
// what it gave (AltUp); at the start they come from the embedding, at the end they become their mean.
// Owner: value. Thread: model thread. Shapes: streams [tokens, n, hidden]. References: Baykal et al. 2023;
// transformers Gemma3nTextAltUp.
#pragma once

#include <string_view>
#include <vector>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/weights.h"
#include "tensor/tensor.h"

namespace mlxcel {

struct AltUpShape {
  int hidden = 0;
  int streams = 4;
  int active = 0;  // the one that is computed
  float eps = 1e-6f;
};

/// One of the streams, [tokens, hidden].
array stream_of(const array& streams, int i);

class AltUp {
 public:
  /// Reads correction_coefs, prediction_coefs, modality_router, router_norm, correct_output_scale.
  AltUp(const Weights& w, const AltUpShape& shape);
  array predict(const array& streams) const;
  /// `computed` [tokens, hidden]: what the layer made of the active one.
  array correct(const array& predicted, const array& computed) const;
  const array& scale() const { return scale_; }

 private:
  array modalities(const array& x) const;

  AltUpShape s_;
  array scale_;
  Linear correct_, predict_, router_;
  RmsNorm norm_;
};

/// From the embedding [tokens, hidden] to streams, each of its magnitude; and back to their mean. Reads
/// "<name>.0" … of every stream but the first.
class StreamEnds {
 public:
  StreamEnds(const Weights& w, std::string_view name, const AltUpShape& shape);
  array unfold(const array& embedding) const;
  array fold(const array& streams) const;

 private:
  std::vector<Linear> projections_;
};

/// An MLP whose gate keeps only what lies `cut` standard deviations above its mean.
class SparseGatedMlp {
 public:
  /// `share` of the gate's entries is let go, if they are distributed normally; 0: none.
  SparseGatedMlp(const Weights& w, int hidden, int width, Activation activation, float share);
  array operator()(const array& x) const;

 private:
  Linear gate_up_, down_;
  Activation activation_;
  bool cuts_;
  float cut_;
};

}  // namespace mlxcel
