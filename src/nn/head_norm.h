// Norms of queries and keys other than the usual RMS over each head before the rotation (heads.h has that one
// fused). Owner: value. Thread: model thread.
#pragma once

#include <optional>
#include <string_view>

#include "nn/norm.h"
#include "nn/phases.h"
#include "nn/weights.h"

namespace mlxcel {

struct HeadNormOptions {
  enum class Kind { rms, layer };
  // head: one weight of head_dim for all; each_head: weights of its own for every head; width: over all
  // heads.
  enum class Over { head, each_head, width };

  float eps = 1e-6f;
  float offset = 0.0f;
  Kind kind = Kind::rms;
  Over over = Over::head;
  bool weighted = true;
  bool after_rope = false;

  /// What heads.h does in one pass.
  bool usual() const { return kind == Kind::rms && over == Over::head && weighted && !after_rope; }
};

class HeadNorm {
 public:
  /// Asks for "<name>.weight" where weighted.
  HeadNorm(const Weights& w, std::string_view name, int heads, int head_dim, const HeadNormOptions& options);
  array operator()(const array& x) const;  // [tokens, heads, head_dim]
  /// The same in place, of heads from column `from` of the list's value on.
  bool phases(PhaseList& list, int from, int heads, int head_dim) const;

 private:
  Norm norm_;
  std::optional<array> weights_;  // [heads, head_dim] of each_head
  HeadNormOptions::Over over_;
};

}  // namespace mlxcel
