// Rotary positions: the frequency table a config asks for, computed once, applied per token at its position.
// Owner: value sharing the table. Thread: construction any, operator() model thread.
// Sources: Su et al. 2021; linear (kaiokendev), NTK by parts "yarn" (Peng et al. 2023), llama3 (Llama 3.1),
// longrope (Ding et al. 2024) where one list of factors serves every length;
// the config keys as transformers' rope utilities define them.
// Failure: unsupported for an unknown rope_type, bad_checkpoint for values out of range.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "nn/dims.h"
#include "state/step.h"
#include "tensor/tensor.h"

namespace mlxcel {

struct RopeOptions {
  float theta = 10000.0f;       // where the config names none
  float part = 1.0f;            // partial_rotary_factor where the config names none
  bool interleaved = false;     // pairs (2i, 2i+1) instead of (i, i + dims/2)
  std::string layer_type = {};  // which block of a rope_parameters table per layer type; empty: the only one
};

class Rope {
 public:
  /// Reads rope_parameters, else rope_theta and rope_scaling; null, absent and {} are the same.
  static Rope from(const Config& config, const Dims& dims, const RopeOptions& options = {});
  /// Plain rotation of the first `rotated` entries of a head, no config.
  static Rope plain(int rotated, float theta, bool interleaved = false);

  /// x [tokens, heads, head_dim], rotated at the step's positions.
  array operator()(const array& x, const Step& step) const;

  /// Each token's cosines, then sines, times scale(): [tokens, 2, frequencies]. Made once a step and shared
  /// by the layers that share this Rope. Native kernels only.
  array angles(const Step& step) const;

  const std::vector<float>& frequencies() const { return frequencies_; }  // radians per position
  bool interleaved() const { return interleaved_; }
  float scale() const { return scale_; }

 private:
  Rope(std::vector<float> frequencies, float scale, bool interleaved);

  std::vector<float> frequencies_;
  float scale_ = 1.0f;  // of the rotated part (yarn's attention factor)
  bool interleaved_ = false;
  array table_;
  struct Recent;  // the last step's angles
  std::shared_ptr<Recent> recent_;
};

}  // namespace mlxcel
