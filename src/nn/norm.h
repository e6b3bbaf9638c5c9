// Normalisations over the last axis, in f32. Values. Thread: model thread.
#pragma once

#include <optional>
#include <variant>

#include "tensor/tensor.h"

namespace mlxcel {

/// x / rms(x) * (weight + offset); `offset` 1 for weights stored around zero.
struct RmsNorm {
  std::optional<array> weight;
  float eps = 1e-6f;
  float offset = 0.0f;
  array operator()(const array& x) const;
};

struct LayerNorm {
  std::optional<array> weight, bias;
  float eps = 1e-5f;
  array operator()(const array& x) const;
};

/// Either kind, for skeletons.
class Norm {
 public:
  Norm(RmsNorm norm) : norm_(std::move(norm)) {}    // NOLINT(google-explicit-constructor)
  Norm(LayerNorm norm) : norm_(std::move(norm)) {}  // NOLINT(google-explicit-constructor)
  array operator()(const array& x) const;
  /// see(the norm that it is)
  template <class See>
  auto visit(const See& see) const {
    return std::visit(see, norm_);
  }

 private:
  std::variant<RmsNorm, LayerNorm> norm_;
};

}  // namespace mlxcel
