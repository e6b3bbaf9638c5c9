// Latent attention whose values are opened by sigmoid(g_proj(x)). Owner: value. Thread: model thread.
// Reference: mlx-lm kimi_k3.
#pragma once

#include <optional>

#include "nn/mla.h"

namespace mlxcel {

class GatedMla : public Mla {
 public:
  bool phases(PhaseList& list) const = delete;  // those of plain latent attention are not its own
  GatedMla(const Weights& w, const MlaOptions& options, bool gated);
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const;

 private:
  std::optional<Linear> gate_;
};

}  // namespace mlxcel
