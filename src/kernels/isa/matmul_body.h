// The packed matrix product over the vector words of whichever tier was included before: the parts and the
// table of them.
#pragma once

#include "kernels/isa/matmul_dense.h"
#include "kernels/isa/matmul_panel.h"
#include "kernels/isa/matmul_spread.h"
#include "kernels/isa/matmul_tile.h"

namespace {

/// Calls apply.template operator()<count>() for 1 <= count <= kMost.
template <int kMost, class Apply>
MLXCEL_INLINE void by_count(int count, const Apply& apply) {
  if constexpr (kMost == 1) {
    apply.template operator()<1>();
  } else {
    if (count == kMost)
      apply.template operator()<kMost>();
    else
      by_count<kMost - 1>(count, apply);
  }
}

/// Calls the instance of a body for a kind of code: apply.template operator()<code>().
template <class Apply>
MLXCEL_INLINE void by_code(CodeKind code, const Apply& apply) {
  switch (code) {
    case kCode2:
      return apply.template operator()<kCode2>();
    case kCode3:
      return apply.template operator()<kCode3>();
    case kCode4:
      return apply.template operator()<kCode4>();
    case kCode5:
      return apply.template operator()<kCode5>();
    case kCode6:
      return apply.template operator()<kCode6>();
    case kCode8:
      return apply.template operator()<kCode8>();
    case kFloat4:
      return apply.template operator()<kFloat4>();
    case kFloat8:
      return apply.template operator()<kFloat8>();
  }
}

template <CodeKind kCode>
constexpr bool bytes_serve_code() {
  return kCode == kCode4 ? kBytesServe4 : kCode == kCode8 && kBytesServe8;
}
bool bytes_serve(CodeKind code) {
  return code == kCode4 ? bytes_serve_code<kCode4>() : code == kCode8 && bytes_serve_code<kCode8>();
}

template <CodeKind kCode, bool kBytes, bool kHalves>
void direct_count(const CodeLayout& layout, const Streams& blocks, const uint8_t* panel, int count,
                  float* acc) {
  by_count<kMostDirect>(count, [&]<int kTokens>() {
    direct_tile<kCode, kTokens, kBytes, kHalves, Sums<kTokens, kBytes>>(layout, blocks, panel, acc);
  });
}

/// kFloat8 has no integer products: it is expanded.
void direct(const CodeLayout& layout, const Streams& blocks, const uint8_t* panel, int count, bool bytes,
            float* acc) {
  by_code(layout.code, [&]<CodeKind kCode>() {
    if constexpr (bytes_serve_code<kCode>())
      if (bytes) return direct_count<kCode, true, false>(layout, blocks, panel, count, acc);
    if constexpr (kCode == kFloat4)
      if (layout.kind == kE4m3) return direct_count<kCode, false, true>(layout, blocks, panel, count, acc);
    if constexpr (kCode != kFloat8) direct_count<kCode, false, false>(layout, blocks, panel, count, acc);
  });
}

void direct_planes(const CodeLayout& layout, const Streams& blocks, const uint8_t* panel, int count,
                   float* acc) {
  if constexpr (kMostPlanes > 0)
    by_count<kMostPlanes>(count, [&]<int kTokens>() {
      direct_tile<kCode4, kTokens, true, false, PlaneSums<kTokens>>(layout, blocks, panel, acc);
    });
}

void spread(const CodeLayout& layout, const uint8_t* block, int first, int last, bool bytes,
            uint8_t* scratch) {
  by_code(layout.code, [&]<CodeKind kCode>() {
    if constexpr (bytes_serve_code<kCode>())
      if (bytes) return spread_chunks<kCode, true, false>(layout, block, first, last, scratch);
    if constexpr (kCode == kFloat4)
      if (layout.kind == kE4m3) return spread_chunks<kCode, false, true>(layout, block, first, last, scratch);
    if constexpr (kCode != kFloat8) spread_chunks<kCode, false, false>(layout, block, first, last, scratch);
  });
}

void expand(const CodeLayout& layout, const uint8_t* block, int first, int last, float* scratch) {
  by_code(layout.code, [&]<CodeKind kCode>() { expand_chunks<kCode>(layout, block, first, last, scratch); });
}

template <bool kBytes, bool kHalves>
void tile_count(const uint8_t* scratch, const uint8_t* panel, int count, int chunks, const uint8_t* next,
                int lines, float* acc) {
  by_count<kMostTokens>(count, [&]<int kTokens>() {
    scratch_tile<kTokens, kBytes, kHalves>(scratch, panel, chunks, next, lines, acc);
  });
}

void tile(const uint8_t* scratch, const uint8_t* panel, int count, int chunks, bool bytes, bool halves,
          const uint8_t* next, int lines, float* acc) {
  if constexpr (kBytesServe4)
    if (bytes) return tile_count<true, false>(scratch, panel, count, chunks, next, lines, acc);
  if (halves) return tile_count<false, true>(scratch, panel, count, chunks, next, lines, acc);
  tile_count<false, false>(scratch, panel, count, chunks, next, lines, acc);
}

void dense_tile(const float* scratch, int rows, const float* panel, int count, int columns, float* acc) {
  by_count<kMostTokens>(count,
                        [&]<int kTokens>() { dense_tokens<kTokens>(scratch, rows, panel, columns, acc); });
}

constexpr MatmulBodies kMatmul{
    .lanes = kLanes,
    .most_tokens = kMostTokens,
    .most_direct = kMostDirect,
    .most_planes = kMostPlanes,
    .quantize = quantize,
    .quantize_bytes = quantize_bytes,
    .quantize_planes = quantize_planes,
    .transpose = transpose,
    .direct = direct,
    .direct_planes = direct_planes,
    .spread = spread,
    .tile = tile,
    .spread_size = scratch_chunk<false, true>(),
    .bytes_serve = bytes_serve,
    .expand = expand,
    .dense_one = dense_one,
    .widen = widen,
    .dense_tile = dense_tile,
    .finish = finish,
    .most_rows = kMostRows,
    .most_rows_bytes = kMostRowsBytes,
};

}  // namespace
