// What a Matrix holds: packed row blocks (isa/matmul.h has their layout), or MLX's planes for the twin.
// Internal to this room. Owner: Matrix, by shared_ptr; immutable after packing. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/isa/matmul.h"
#include "kernels/matrix.h"
#include "kernels/packed_file.h"

namespace mlxcel::kernels {

/// 64-byte aligned memory out of shared regions in huge pages, so that small matrices get them too.
std::shared_ptr<uint8_t> packed_memory(size_t bytes);

/// The bodies of the instruction set in use.
const MatmulBodies& matmul_bodies();

/// Rows of one format that lie in one packed table, one after another in the output.
struct Segment {
  int rows = 0;     // output columns that it makes (a gated one: of gate, equal to those of up)
  int column0 = 0;  // where they begin
  bool dense = false;
  bool gated = false;       // a block's first half are gate rows, its second half up rows
  ElementKind kind = kF32;  // dense: of elements
  CodeLayout layout{};      // quantised
  int block_rows = 0;
  int blocks = 0;
  size_t block_bytes = 0;
  std::shared_ptr<uint8_t> memory;  // [experts][blocks][block_bytes]

  const uint8_t* block(int expert, int index) const {
    return memory.get() +
           (static_cast<size_t>(expert) * static_cast<size_t>(blocks) + static_cast<size_t>(index)) *
               block_bytes;
  }
  uint8_t* block(int expert, int index) {
    return const_cast<uint8_t*>(std::as_const(*this).block(expert, index));
  }
  /// Where row `row` of the segment lies: `half` 0, or 1 for an up row.
  struct Place {
    int block, row;
  };
  Place place(int row, int half) const {
    const int per_block = gated ? block_rows / 2 : block_rows;
    return {row / per_block, row % per_block + half * per_block};
  }
};

/// A weight that went in, as unpack() gives it back.
struct Source {
  std::string name;
  Shape shape;
  std::optional<QuantFormat> format;
  mx::Dtype dtype;  // of scales, or of dense elements
  int segment = 0;
  int row0 = 0;  // first row in the segment
  int half = 0;  // 1: up rows of a gated segment
};

struct Matrix::Storage {
  KernelMode mode = KernelMode::native;
  int rows = 0, columns = 0, experts = 0;
  bool gate_up = false;  // made by gated(): one gated segment, or a gate and an up segment
  const MatmulBodies* bodies = nullptr;
  std::vector<Segment> segments;
  std::vector<Source> sources;
  std::vector<Weight> planes;  // reference mode

  bool fused_gate() const { return gate_up && segments.size() == 1; }
  size_t bytes_of(const Segment& segment) const {
    return segment.block_bytes * static_cast<size_t>(segment.blocks) *
           static_cast<size_t>(experts > 0 ? experts : 1);
  }
};

WeightForm form_of(const Weight& weight);

/// A storage of no segments yet for weights that go into one matrix; `gated`: two of them, gate and up.
/// bad_checkpoint with a weight's name where they do not fit together.
std::shared_ptr<Matrix::Storage> make_storage(std::span<const WeightForm> forms, bool gated);

/// Cuts weights into segments, for the bodies in use unless `storage` names some; without memory.
/// `centred(first, last)`: whether the biases of weights [first, last) all follow from their scales.
void lay_out(Matrix::Storage& storage, std::span<const WeightForm> forms, bool gated,
             const std::function<bool(size_t first, size_t last)>& centred);

/// Lays out and packs weights.
void pack(Matrix::Storage& storage, std::span<const Weight> weights, bool gated);
std::vector<Weight> unpack(const Matrix::Storage& storage);

/// Expected dtypes, planes and formats, or bad_checkpoint with the weight's name.
void check_weight(const Weight& weight);

/// Row `row` of the output as f32 [columns].
void decode_row(const Matrix::Storage& storage, int row, float* out);

}  // namespace mlxcel::kernels
