// The halves of a gated matrix by themselves: for what must be added before the activation (adapters).
#include "base/error.h"
#include "kernels/matrix.h"
#include "kernels/packed.h"

namespace mlxcel::kernels {

Matrix Matrix::as_plain() const {
  if (!storage_->gate_up) return *this;
  auto view = std::make_shared<Storage>(*storage_);
  view->gate_up = false;
  if (storage_->fused_gate() && storage_->mode == KernelMode::native) {
    // Blocks of gate rows, then as many up rows: their outputs come in that order, padding included.
    Segment& s = view->segments[0];
    s.gated = false;
    s.rows = s.blocks * s.block_rows;
    view->rows = s.rows;
  }
  Matrix plain;
  plain.storage_ = std::move(view);
  return plain;
}

array gate_and_up(const array& x, const Matrix& gate_up, const std::optional<array>& experts) {
  const auto& storage = *gate_up.storage();
  if (!storage.gate_up) fail(ErrorKind::internal, "gate_and_up: the matrix was not made by Matrix::gated");
  const Matrix plain = gate_up.as_plain();
  const array y = experts ? gather_matmul(x, plain, *experts) : matmul(x, plain);
  if (storage.mode != KernelMode::native || !storage.fused_gate()) return y;

  const int half = storage.rows / 2, blocks = storage.segments[0].blocks,
            each = storage.segments[0].block_rows / 2;
  Shape dealt = y.shape();
  dealt.back() = blocks;
  dealt.insert(dealt.end(), {2, each});
  Shape whole = y.shape();
  whole.back() = blocks * each;
  Shape cut = y.shape();
  cut.back() = half;
  const auto side = [&](int which) {
    Shape start(dealt.size(), 0), stop = dealt;
    start[dealt.size() - 2] = which;
    stop[dealt.size() - 2] = which + 1;
    const array rows = mx::reshape(mx::slice(mx::reshape(y, dealt), start, stop), whole);
    return mx::slice(rows, Shape(cut.size(), 0), cut);
  };
  return mx::concatenate({side(0), side(1)}, -1);
}

}  // namespace mlxcel::kernels
