// The bodies of the packed matrix product, one table a tier. Plain C types only: this header is included
// by units compiled for different instruction sets.
//
// Packed quantised block: 2 * lanes rows (two vectors of rows; in a gated matrix gate rows then up rows).
// Along K, for every group of the format: for each 32 columns the words of vector 0, then of vector 1; after
// the group's words its scales (vector 0, 1), then its biases, in the file's own type. Centred
// layouts and the float formats store no biases; nvfp4's groups of 16 go two by two, the scales of both
// behind 32 columns.
//   8-bit words 2q + h, h < 2: bytes 0, 2 hold columns 8q + 2h, 8q + 2h + 1, bytes 1, 3 those 4 further.
//   4-bit words: of word q bits 4j..4j+3 hold column 8q + 2j, bits 16 + 4j.. column 8q + 2j + 1 (j < 4).
//   2-bit and 1-bit words in the same way, 16 and 32 columns a word.
//   3, 5 and 6 bits: the words of the low 2, 4, 4 bits of each code, then those of its high 1, 1, 2 bits.
// A lane so has as many words as a code has bits.
// So masks give pairs of int16, or quads of bytes in the order (0, 4, 1, 5), (2, 6, 3, 7) of each 8 columns.
// Packed dense block: [K][kDenseRows] in the file's own type (gated: half gate, half up rows).
// Activation panel of a tile of `count` tokens, per 32 columns: 16 pairs of int16 (or 8 quads of int8) for
// each token, [pair][count], then [count] scales, then [count] scale * sum.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mlxcel::kernels {

enum ElementKind : int { kF32, kF16, kBf16, kE8m0, kE4m3 };  // the last two: scales of one byte
/// What a code stands for: an unsigned integer of so many bits, e2m1, e4m3.
enum CodeKind : int { kCode2, kCode3, kCode4, kCode5, kCode6, kCode8, kFloat4, kFloat8 };
/// Words of a lane for 32 columns: the bits of a code.
constexpr int words_of(CodeKind code) {
  constexpr int kWords[] = {2, 3, 4, 5, 6, 8, 4, 8};
  return kWords[code];
}

constexpr int kDenseRows = 32;
constexpr int kChunk = 32;  // columns that share an activation scale
/// Largest 16-bit activation code: 256 * 127 + 127, so that it splits into two int8.
constexpr int kLimit16 = 32639;

/// How a quantised matrix lies in its blocks.
struct CodeLayout {
  CodeKind code;
  int group;         // columns whose scales stand together: a multiple of 32
  ElementKind kind;  // of scales, and of biases where the code is an integer
  int columns;
  bool centred = false;  // biases are minus half the codes' range times the scale: not stored
};
/// Half the range of an integer code.
constexpr int half_range(CodeKind code) { return 1 << (words_of(code) - 1); }

/// Blocks of one matrix that are read side by side: memory gives more to a few long streams than to one.
constexpr int kMostStreams = 4;
struct Streams {
  const uint8_t* at[kMostStreams];
  int count;
};

/// What happens to a finished tile: out[row][column0 + r] = activation(acc + bias) + residual.
struct Finish {
  float* out;
  ptrdiff_t stride;       // of out and residual, in floats
  const int* rows;        // row of out for each token; none: first_row + token
  const float* bias;      // by column of the segment, or none
  const float* up_bias;   // gated: of the up half
  const float* residual;  // same shape as out, or none
  int columns;            // valid output columns of the segment
  int column0;            // where the segment begins in out
  int activation;         // gated: of the gate half
  bool gated;
};

struct MatmulBodies {
  int lanes;
  int most_tokens;  // widest tile
  int most_direct;  // most tokens that direct() takes
  int most_planes;  // most tokens for which direct_planes() is the faster way to 4-bit codes; 0: none

  /// One tile's panel for columns [32 * first, 32 * last): tokens x[t] (columns floats each) to int16 with
  /// `limit` kLimit16 or 127.
  void (*quantize)(const float* const* x, int count, int first, int last, int limit, uint8_t* panel);
  /// The same as int8 quads, for `quads` of product.
  void (*quantize_bytes)(const float* const* x, int count, int first, int last, uint8_t* panel);
  /// The same as the high and the low int8 of each int16, quads each, for direct_planes(): equal sums.
  void (*quantize_planes)(const float* const* x, int count, int first, int last, uint8_t* panel);
  /// One tile's f32 panel [column][count].
  void (*transpose)(const float* const* x, int count, int first, int last, float* panel);

  /// acc [stream][count][2 * lanes] = block * panel; few tokens, straight from the packed blocks.
  void (*direct)(const CodeLayout& layout, const Streams& blocks, const uint8_t* panel, int count, bool bytes,
                 float* acc);
  void (*direct_planes)(const CodeLayout& layout, const Streams& blocks, const uint8_t* panel, int count,
                        float* acc);
  /// The block's chunks [first, last) (whole groups) spread to int16 (or bytes) with f32 scales, for `tile`.
  void (*spread)(const CodeLayout& layout, const uint8_t* block, int first, int last, bool bytes,
                 uint8_t* scratch);
  /// acc += scratch * panel over `chunks`, both from their first chunk. `halves`: each half of a chunk has
  /// scales of its own. Meanwhile memory is asked for `lines` lines from `next` on.
  void (*tile)(const uint8_t* scratch, const uint8_t* panel, int count, int chunks, bool bytes, bool halves,
               const uint8_t* next, int lines, float* acc);
  size_t spread_size;  // bytes of a chunk in `scratch`, at most
  /// Whether int8 panels serve these codes.
  bool (*bytes_serve)(CodeKind code);

  /// The block's columns of chunks [first, last) as f32 [column][2 * lanes].
  void (*expand)(const CodeLayout& layout, const uint8_t* block, int first, int last, float* scratch);

  /// acc [stream][kDenseRows] = block * x, one token.
  void (*dense_one)(ElementKind kind, const Streams& blocks, const float* x, int columns, float* acc);
  /// `count` elements to f32.
  void (*widen)(ElementKind kind, const uint8_t* from, size_t count, float* to);
  /// acc [count][rows] += scratch [columns][rows] * panel [columns][count]; rows a multiple of 2 * lanes.
  void (*dense_tile)(const float* scratch, int rows, const float* panel, int count, int columns, float* acc);

  /// acc [count][rows] to the output; `block` numbers the blocks of the segment.
  void (*finish)(const Finish& how, const float* acc, int rows, int block, int first_row, int count);

  /// Most tokens, in several tiles, for which direct() is faster than spread() and tile(): of pairs, of
  /// bytes.
  int most_rows, most_rows_bytes;
};

const MatmulBodies& matmul_generic();
#if defined(__x86_64__)
const MatmulBodies& matmul_avx2();
const MatmulBodies& matmul_avx512();
#endif

}  // namespace mlxcel::kernels
