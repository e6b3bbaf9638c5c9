// Rotary positions: the frequency table a config asks for, computed once, applied per token at its position.
// Owner: value sharing the table. Thread: construction any, operator() model thread.
// Sources: Su et al. 2021; linear (kaiokendev), NTK by parts "yarn" (Peng et al. 2023), llama3 (Llama 3.1),
// longrope (Ding et al. 2024), dynamic and alpha NTK (bloc97);
// the config keys as transformers' rope utilities define them.
// Some scalings depend on how long a row is. That is settled by its prompt (StepRow::horizon), once: keys
// that are in memory keep their rotation. Failure: unsupported for an unknown rope_type, bad_checkpoint for
// values out of range.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
  const char* theta_key = "rope_theta";
  const char* part_key = "partial_rotary_factor";
  bool backwards = false;         // turned the other way
  bool yarn_is_longrope = false;  // an older name for it
  bool ntk_alpha = false;         // "dynamic" with an alpha is a fixed base: theta * alpha^(d / (d - 2))
};

class Rope {
 public:
  /// Reads rope_parameters, else rope_theta and rope_scaling; null, absent and {} are the same.
  static Rope from(const Config& config, const Dims& dims, const RopeOptions& options = {});
  /// Plain rotation of the first `rotated` entries of a head, no config.
  /// The first `part` of a head's pairs rotate as they would in a head that rotates whole; half-split.
  static Rope proportional(int head_dim, float theta, float part, float factor = 1.0f);
  static Rope plain(int rotated, float theta, bool interleaved = false);

  /// x [tokens, heads, head_dim], rotated at the step's positions.
  array operator()(const array& x, const Step& step) const;

  /// Each token's cosines, then sines, times scale(): [tokens, 2 * frequencies]. Made once a step and shared
  /// by the layers that share this Rope. Native kernels only.
  array angles(const Step& step) const;

  const std::vector<float>& frequencies() const { return frequencies_; }  // radians per position
  bool interleaved() const { return interleaved_; }
  const array& table() const { return table_; }           // the frequencies, [dims / 2]
  const void* identity() const { return recent_.get(); }  // the same for copies of one Rope
  float scale() const { return scale_; }
  /// Rows whose horizon is longer are rotated otherwise; 0: none are.
  int limit() const { return limit_; }
  /// Whether that differs with every length.
  bool grows() const { return grows_; }

 private:
  Rope(std::vector<float> frequencies, float scale, bool interleaved);
  bool within(const Step& step) const;
  std::vector<float> frequencies_for(int horizon) const;

  std::vector<float> frequencies_;
  float scale_ = 1.0f;  // of the rotated part (yarn's attention factor)
  bool interleaved_ = false;
  int limit_ = 0;
  bool grows_ = false;
  std::function<std::vector<float>(int horizon)> beyond_;  // frequencies past the limit
  array table_;
  struct Recent;  // the last step's angles
  std::shared_ptr<Recent> recent_;
};

inline std::optional<Rope> rope_if(bool rotated, const Rope& rope) {
  return rotated ? std::optional(rope) : std::nullopt;
}

}  // namespace mlxcel
