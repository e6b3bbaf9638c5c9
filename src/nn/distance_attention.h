// Attention without rotation: every token mixes learned weights of the distance to each key, short
// convolutions stand behind keys and values. Owner: value. Thread: model thread. Shapes: x [tokens, hidden]
// -> [tokens, hidden]. Reference: transformers InklingAttention, InklingShortConvolution.
#pragma once

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

/// x plus a convolution of it over the row's last tokens. Reads conv1d.
class Smear {
 public:
  Smear(const Weights& w, int width, int taps);
  array operator()(const array& x, Step& step) const;

 private:
  array weight_;
  int slot_;
};

struct DistanceOptions {
  int hidden = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  int window = 0;  // 0: none
  int reach = 0;   // distances that have a weight, from 0 on
  int inner = 0;   // numbers of a head that those weights are mixed from
  int taps = 4;
  float eps = 1e-6f;
  int floor = 0;  // positions from here on sharpen the scores; 0: none do
  float sharpening = 0.0f;
};

/// Reads q_proj, k_proj, v_proj, r_proj, o_proj, the norms of q and k, k_sconv, v_sconv, rel_logits_proj.
class DistanceAttention {
 public:
  DistanceAttention(const Weights& w, const DistanceOptions& options);
  array operator()(const array& x, Step& step) const;

 private:
  array sharpness(const Step& step) const;

  DistanceOptions o_;
  Linear in_, out_, distances_;
  RmsNorm q_norm_, k_norm_;
  Smear keys_, values_;
  int slot_;
};

}  // namespace mlxcel
