// One attention over pages as phases: the rotation of heads where asked, the append to the pages, the tiles
// (or their segments apart), the merge. Internal to this room.
// Thread: MLX's stream thread or the model thread. What a call points at must live until the phases have run.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/isa/attention_call.h"
#include "kernels/isa/rowwise.h"
#include "kernels/matmul.h"
#include "kernels/phases.h"
#include "kernels/scratch.h"

namespace mlxcel::kernels {

/// What q and k of one projection go through, in place, before they meet: a norm over each head, a rotation.
/// The call's q and k must then be writable, with heads of equal width.
struct HeadTurn {
  const RowNorm* q_norm = nullptr;  // RMS; none: as it is
  const RowNorm* k_norm = nullptr;
  const float* angles = nullptr;  // [tokens, 2, half]: cosines, then sines; none: not rotated
  int half = 0;
  bool interleaved = false;
  const float* factors = nullptr;  // [tokens]: of q, last; none: one
};

/// Attentions as phases of a longer program; they share scratch memory.
class Attentions {
 public:
  Attentions();
  ~Attentions();
  void clear() { used_ = 0; }
  void add(const AttentionCall& call, int rows, const HeadTurn* turn, std::vector<Phase>& phases);
  /// After the last add(), before the phases run.
  void bind();
  /// Multiply-adds of what was added last.
  long long products() const;

 private:
  class Plan;
  std::vector<std::unique_ptr<Plan>> plans_;
  size_t used_ = 0;
  Scratch scratch_;
};

void run_attention(const AttentionCall& call, int rows);

/// Those of the instruction set in use.
const AttentionBodies& attention_bodies();

}  // namespace mlxcel::kernels
