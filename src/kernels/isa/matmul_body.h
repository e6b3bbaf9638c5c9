// The packed matrix product over the vector words of whichever tier was included before (isa/matmul.h has
// the layouts). Every output element is the same sequence of operations for any number of tokens: exact
// integer sums over a chunk, then fma(sum * weight scale, x scale), fma(weight bias, x scale * x sum), chunks
// in order; dense: one fma a column, in order.
#pragma once

#include "kernels/isa/matmul_codes.h"

namespace {

// ---- Activations ----------------------------------------------------------------------------------

/// The scale of 32 values at x, and 1 / scale. Groups below 1e-33 count as zero; a NaN gives scale NaN.
MLXCEL_INLINE float chunk_scale(const float* x, int limit, float* inverse) {
  I most = zero_i();
  for (int i = 0; i < kChunk; i += kLanes) most = max_i(most, and_i(bits(load(x + i)), set1_i(0x7fffffff)));
  const int32_t top = max_lane(most);  // bit patterns of non-negative floats order as integers, NaN on top
  float value;
  memcpy(&value, &top, 4);
  if (value < 1e-33f) {
    *inverse = 0.0f;
    return 0.0f;
  }
  *inverse = static_cast<float>(limit) / value;
  return value / static_cast<float>(limit);
}

/// 32 values as integers in [-limit, limit].
MLXCEL_INLINE int32_t chunk_codes(const float* x, float inverse, int32_t* code) {
  I total = zero_i();
  for (int i = 0; i < kChunk; i += kLanes) {
    const I v = to_int(mul(load(x + i), set1(inverse)));
    total = add_i(total, v);
    store_i(code + i, v);
  }
  return sum_i(total);
}

void quantize(const float* const* x, int count, int first, int last, int limit, uint8_t* panel) {
  for (int chunk = first; chunk < last; ++chunk) {
    uint8_t* record = panel + static_cast<size_t>(chunk) * static_cast<size_t>(count) * panel_token<false>();
    for (int t = 0; t < count; ++t) {
      float inverse;
      int32_t code[kChunk];
      const float* from = x[t] + static_cast<ptrdiff_t>(chunk) * kChunk;
      const float scale = chunk_scale(from, limit, &inverse);
      const int32_t total = chunk_codes(from, inverse, code);
      uint8_t* to = record + 4 * t;
      const ptrdiff_t step = 4 * count;
      for (int p = 0; p < kPairs; ++p, to += step) {
        const uint32_t pair =
            (static_cast<uint32_t>(code[2 * p]) & 0xffffu) | static_cast<uint32_t>(code[2 * p + 1]) << 16;
        memcpy(to, &pair, 4);
      }
      const float tail = scale * static_cast<float>(total);
      memcpy(to, &scale, 4);
      memcpy(to + step, &tail, 4);
    }
  }
}

MLXCEL_INLINE uint32_t quad_of(int32_t a, int32_t b, int32_t c, int32_t d) {
  return (static_cast<uint32_t>(a) & 0xffu) | (static_cast<uint32_t>(b) & 0xffu) << 8 |
         (static_cast<uint32_t>(c) & 0xffu) << 16 | static_cast<uint32_t>(d) << 24;
}

void quantize_bytes(const float* const* x, int count, int first, int last, uint8_t* panel) {
  for (int chunk = first; chunk < last; ++chunk) {
    uint8_t* record = panel + static_cast<size_t>(chunk) * static_cast<size_t>(count) * panel_token<true>();
    for (int t = 0; t < count; ++t) {
      float inverse;
      int32_t code[kChunk];
      const float* from = x[t] + static_cast<ptrdiff_t>(chunk) * kChunk;
      const float scale = chunk_scale(from, 127, &inverse);
      const int32_t total = chunk_codes(from, inverse, code);
      uint8_t* to = record + 4 * t;
      const ptrdiff_t step = 4 * count;
      for (int q = 0; q < kQuads; ++q, to += step) {
        const int32_t* c = code + 8 * (q / 2) + 2 * (q % 2);
        const uint32_t quad = quad_of(c[0], c[4], c[1], c[5]);
        memcpy(to, &quad, 4);
      }
      const float tail = scale * static_cast<float>(total);
      memcpy(to, &scale, 4);
      memcpy(to + step, &tail, 4);
    }
  }
}

/// The codes of quantize() as two planes of int8, 256 * high + low, for products that are byte by byte.
void quantize_planes(const float* const* x, int count, int first, int last, uint8_t* panel) {
  for (int chunk = first; chunk < last; ++chunk) {
    uint8_t* record = panel + static_cast<size_t>(chunk) * static_cast<size_t>(count) * panel_token<false>();
    for (int t = 0; t < count; ++t) {
      float inverse;
      int32_t code[kChunk];
      const float* from = x[t] + static_cast<ptrdiff_t>(chunk) * kChunk;
      const float scale = chunk_scale(from, mlxcel::kernels::kLimit16, &inverse);
      const int32_t total = chunk_codes(from, inverse, code);
      uint8_t* to = record + 4 * t;
      const ptrdiff_t step = 4 * count;
      for (int q = 0; q < kQuads; ++q, to += step) {
        const int32_t* c = code + 8 * (q / 2) + 2 * (q % 2);
        const uint32_t low = quad_of(c[0], c[4], c[1], c[5]);
        const uint32_t high =
            quad_of((c[0] + 128) >> 8, (c[4] + 128) >> 8, (c[1] + 128) >> 8, (c[5] + 128) >> 8);
        memcpy(to, &high, 4);
        memcpy(to + kQuads * step, &low, 4);
      }
      to += kQuads * step;
      const float tail = scale * static_cast<float>(total);
      memcpy(to, &scale, 4);
      memcpy(to + step, &tail, 4);
    }
  }
}

void transpose(const float* const* x, int count, int first, int last, float* panel) {
  for (int column = first; column < last; ++column)
    for (int t = 0; t < count; ++t) panel[static_cast<ptrdiff_t>(column) * count + t] = x[t][column];
}

// ---- Products -------------------------------------------------------------------------------------

MLXCEL_INLINE const uint8_t* token_word(const uint8_t* panel, int index, int count, int t) {
  return panel + 4 * (index * count + t);
}

/// Weights are asked for this far ahead of their use: the hardware's own prefetch lags behind a stream that
/// has arithmetic between its loads (Zen 3, one thread: 12.7 -> 17.4 GB/s). Beyond the end it does nothing.
constexpr size_t kAhead = 3200;

template <size_t kBytes>
MLXCEL_INLINE void fetch_ahead(const uint8_t* at) {
  for (size_t line = 0; line < kBytes; line += 64) __builtin_prefetch(at + kAhead + line);
}

/// Sums of a chunk: one (pairs) or four (quads) columns a step against kTokens activations.
template <int kTokens, bool kBytes>
struct Sums {
  I s0[kTokens], s1[kTokens];

  inline __attribute__((always_inline)) void clear() {
    for (int t = 0; t < kTokens; ++t) s0[t] = s1[t] = zero_i();
  }
  inline __attribute__((always_inline)) void step(const uint8_t* panel, int index, I w0, I w1) {
    for (int t = 0; t < kTokens; ++t) {
      const uint8_t* const x = token_word(panel, index, kTokens, t);
      if constexpr (kBytes)
        step_quads(s0[t], s1[t], w0, w1, x);
      else
        step_pairs(s0[t], s1[t], w0, w1, x);
    }
  }
  inline __attribute__((always_inline)) void start(const uint8_t* panel, I w0, I w1) {
    for (int t = 0; t < kTokens; ++t) {
      const uint8_t* const x = token_word(panel, 0, kTokens, t);
      if constexpr (kBytes)
        start_quads(s0[t], s1[t], w0, w1, x);
      else
        start_pairs(s0[t], s1[t], w0, w1, x);
    }
  }
  inline __attribute__((always_inline)) I sum0(int t) const { return kBytes ? settle4(s0[t]) : s0[t]; }
  inline __attribute__((always_inline)) I sum1(int t) const { return kBytes ? settle4(s1[t]) : s1[t]; }
};

/// The same with activations as two planes of bytes.
template <int kTokens>
struct PlaneSums {
  I h0[kTokens], h1[kTokens], l0[kTokens], l1[kTokens];

  inline __attribute__((always_inline)) void clear() {
    for (int t = 0; t < kTokens; ++t) h0[t] = h1[t] = l0[t] = l1[t] = zero_i();
  }
  inline __attribute__((always_inline)) void step(const uint8_t* panel, int index, I w0, I w1) {
    for (int t = 0; t < kTokens; ++t) {
      step_quads(h0[t], h1[t], w0, w1, token_word(panel, index, kTokens, t));
      step_quads(l0[t], l1[t], w0, w1, token_word(panel, kQuads + index, kTokens, t));
    }
  }
  inline __attribute__((always_inline)) I sum0(int t) const { return settle_planes(h0[t], l0[t]); }
  inline __attribute__((always_inline)) I sum1(int t) const { return settle_planes(h1[t], l1[t]); }
};

/// acc += the chunk's sums, scaled. `words`: the panel's integers a token, before its scale; tail: the
/// group's scales and biases, two vectors each.
template <int kTokens, class Sum>
MLXCEL_INLINE void add_chunk(const Sum& sums, const uint8_t* panel, int words, const float* tail,
                             float* acc) {
  const auto* const scales = reinterpret_cast<const float*>(token_word(panel, words, kTokens, 0));
  for (int t = 0; t < kTokens; ++t)
    add_scaled(sums.sum0(t), sums.sum1(t), tail, scales + t, scales + kTokens + t, acc + t * 2 * kLanes);
}

/// Halves of a chunk that have scales of their own.
template <bool kHalves>
constexpr int kParts = kHalves ? 2 : 1;

template <CodeKind kCode, int kTokens, bool kBytes, bool kHalves, class Sum>
__attribute__((noinline)) void direct_tile(const CodeLayout& layout, const uint8_t* block,
                                           const uint8_t* panel, float* out) {
  constexpr bool kQuadPanel = kBytes && __is_same(Sum, Sums<kTokens, true>);
  constexpr size_t kWords = 2 * words_of(kCode) * kVector;
  const int groups = layout.columns / layout.group, chunks = layout.group / kChunk;
  const CodeLayout own = layout;  // nobody else writes it
  const size_t tail_size = tail_bytes(own);
  alignas(64) float acc[kTokens * 2 * kLanes] = {};
  for (int g = 0; g < groups; ++g) {
    const uint8_t* const tail = block + static_cast<size_t>(chunks) * kWords;
    alignas(64) float scales[kParts<kHalves>][4 * kLanes];
    for (int h = 0; h < kParts<kHalves>; ++h) load_tail(own, tail, h, scale_factor<kCode>(), scales[h]);
    for (int c = 0; c < chunks; ++c) {
      fetch_ahead<kWords + 64>(block);
      Sum sums;
      sums.clear();
      const auto step = [&](int index, I w0, I w1)
                            __attribute__((always_inline)) { sums.step(panel, index, w0, w1); };
      if constexpr (kBytes) {
        each_quad<kCode>(block, step);
      } else if constexpr (kHalves) {
        each_pair<kCode, 0, kPairs / 2>(block, step);
        add_chunk<kTokens>(sums, panel, kPairs, scales[0], acc);
        sums.clear();
        each_pair<kCode, kPairs / 2, kPairs>(block, step);
      } else {
        each_pair<kCode, 0, kPairs>(block, step);
      }
      add_chunk<kTokens>(sums, panel, kQuadPanel ? kQuads : kPairs, scales[kParts<kHalves> - 1], acc);
      block += kWords;
      panel += kTokens * panel_token<kQuadPanel>();
    }
    block = tail + tail_size;
  }
  memcpy(out, acc, sizeof acc);
}

template <int kTokens, bool kBytes, bool kHalves>
__attribute__((noinline)) void scratch_tile(const uint8_t* scratch, const uint8_t* panel, int chunks,
                                            float* __restrict acc) {
  constexpr int kSteps = (kBytes ? kQuads : kPairs) / kParts<kHalves>;
  for (int c = 0; c < chunks; ++c) {
    for (int h = 0; h < kParts<kHalves>; ++h) {
      Sums<kTokens, kBytes> sums;
      const uint8_t* const x = panel + 4 * h * kSteps * kTokens;
      sums.start(x, load_i(scratch), load_i(scratch + kVector));
      for (int i = 1; i < kSteps; ++i)
        sums.step(x, i, load_i(scratch + 2 * i * kVector), load_i(scratch + (2 * i + 1) * kVector));
      add_chunk<kTokens>(sums, panel, kSteps * kParts<kHalves>,
                         reinterpret_cast<const float*>(scratch + 2 * kSteps * kVector), acc);
      scratch += 2 * kVector * (kSteps + 2);
    }
    panel += kTokens * panel_token<kBytes>();
  }
}

template <CodeKind kCode, bool kBytes, bool kHalves>
void spread_chunks(const CodeLayout& layout, const uint8_t* block, int first, int last, uint8_t* scratch) {
  const int chunks = layout.group / kChunk;
  constexpr int kSteps = (kBytes ? kQuads : kPairs) / kParts<kHalves>;
  constexpr size_t kWords = 2 * words_of(kCode) * kVector, kPart = 2 * kVector * (kSteps + 2);
  const size_t group_size = static_cast<size_t>(chunks) * kWords + tail_bytes(layout);
  for (int g = first / chunks; g < last / chunks; ++g) {
    const uint8_t* words = block + static_cast<size_t>(g) * group_size;
    const uint8_t* const tail = words + static_cast<size_t>(chunks) * kWords;
    for (int c = 0; c < chunks; ++c) {
      fetch_ahead<kWords + 64>(words);
      const auto step = [&](int index, I w0, I w1) __attribute__((always_inline)) {
        uint8_t* const to = scratch + static_cast<size_t>(index / kSteps) * kPart +
                            static_cast<size_t>(2 * (index % kSteps)) * kVector;
        store_i(to, w0);
        store_i(to + kVector, w1);
      };
      if constexpr (kBytes)
        each_quad<kCode>(words, step);
      else
        each_pair<kCode, 0, kPairs>(words, step);
      for (int h = 0; h < kParts<kHalves>; ++h)
        load_tail(layout, tail, h, scale_factor<kCode>(),
                  reinterpret_cast<float*>(scratch + static_cast<size_t>(h) * kPart + 2 * kSteps * kVector));
      words += kWords;
      scratch += scratch_chunk<kBytes, kHalves>();
    }
  }
}

template <CodeKind kCode>
void expand_chunks(const CodeLayout& layout, const uint8_t* block, int first, int last, float* to) {
  const int chunks = layout.group / kChunk;
  constexpr size_t kWords = 2 * words_of(kCode) * kVector;
  const bool halves = layout.kind == kE4m3;
  const size_t group_size = static_cast<size_t>(chunks) * kWords + tail_bytes(layout);
  for (int chunk = first; chunk < last; ++chunk) {
    const uint8_t* const group = block + static_cast<size_t>(chunk / chunks) * group_size;
    const uint8_t* const tail = group + static_cast<size_t>(chunks) * kWords;
    alignas(64) float scales[2][4 * kLanes];
    for (int h = 0; h < (halves ? 2 : 1); ++h) load_tail(layout, tail, h, scale_factor<kCode>(), scales[h]);
    each_pair<kCode, 0, kPairs>(
        group + static_cast<size_t>(chunk % chunks) * kWords, [&](int index, I w0, I w1) {
          const float* const s = scales[halves && index >= kPairs / 2 ? 1 : 0];
          float* const at = to + index * 4 * kLanes;  // two columns of two vectors
          const auto value = [&](I pair, bool second, int v) __attribute__((always_inline)) {
            const F scale = load(s + v * kLanes);
            if constexpr (kCode == kFloat8)
              return mul(float8(second ? shift_right<16>(pair) : and_i(pair, set1_i(0xffff)), 1.0f), scale);
            else if constexpr (kCode == kFloat4)
              return mul(to_float(shift_signed<16>(second ? pair : shift_left<16>(pair))), scale);
            else
              return add(mul(to_float(second ? shift_right<16>(pair) : and_i(pair, set1_i(0xffff))), scale),
                         load(s + (2 + v) * kLanes));
          };
          store(at, value(w0, false, 0));
          store(at + kLanes, value(w1, false, 1));
          store(at + 2 * kLanes, value(w0, true, 0));
          store(at + 3 * kLanes, value(w1, true, 1));
        });
    to += kChunk * 2 * kLanes;
  }
}

// ---- Dense ----------------------------------------------------------------------------------------

template <ElementKind kKind>
void dense_row(const uint8_t* block, const float* x, int columns, float* acc) {
  constexpr int kVectors = kDenseRows / kLanes;
  F sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = zero();
  for (int k = 0; k < columns; ++k) {
    const F value = set1(x[k]);
    fetch_ahead<kDenseRows * element_size<kKind>()>(block);
    for (int v = 0; v < kVectors; ++v)
      sums[v] = fma(load_element<kKind>(block + static_cast<size_t>(v * kLanes) * element_size<kKind>()),
                    value, sums[v]);
    block += kDenseRows * element_size<kKind>();
  }
  for (int v = 0; v < kVectors; ++v) store(acc + v * kLanes, sums[v]);
}

void dense_one(ElementKind kind, const uint8_t* block, const float* x, int columns, float* acc) {
  if (kind == kF32)
    dense_row<kF32>(block, x, columns, acc);
  else if (kind == kF16)
    dense_row<kF16>(block, x, columns, acc);
  else
    dense_row<kBf16>(block, x, columns, acc);
}

template <ElementKind kKind>
void widen_all(const uint8_t* from, size_t count, float* to) {
  for (size_t i = 0; i < count; i += kLanes)
    store(to + i, load_element<kKind>(from + i * element_size<kKind>()));
}

void widen(ElementKind kind, const uint8_t* from, size_t count, float* to) {
  if (kind == kF32)
    widen_all<kF32>(from, count, to);
  else if (kind == kF16)
    widen_all<kF16>(from, count, to);
  else
    widen_all<kBf16>(from, count, to);
}

template <int kTokens>
__attribute__((noinline)) void dense_tokens(const float* scratch, int rows, const float* panel, int columns,
                                            float* acc) {
  for (int r = 0; r < rows; r += 2 * kLanes) {
    F s0[kTokens], s1[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      s0[t] = load(acc + t * rows + r);
      s1[t] = load(acc + t * rows + r + kLanes);
    }
    const float* w = scratch + r;
    const float* x = panel;
    for (int k = 0; k < columns; ++k, w += rows, x += kTokens) {
      const F w0 = load(w), w1 = load(w + kLanes);
      for (int t = 0; t < kTokens; ++t) step_floats(s0[t], s1[t], w0, w1, x + t);
    }
    for (int t = 0; t < kTokens; ++t) {
      store(acc + t * rows + r, s0[t]);
      store(acc + t * rows + r + kLanes, s1[t]);
    }
  }
}

// ---- Output ---------------------------------------------------------------------------------------

void finish(const Finish& how, const float* acc, int rows, int block, int first_row, int count) {
  const int width = how.gated ? rows / 2 : rows;  // output columns of a block
  const int column = block * width;
  const int valid = how.columns - column < width ? how.columns - column : width;
  for (int t = 0; t < count; ++t) {
    const float* const from = acc + static_cast<ptrdiff_t>(t) * rows;
    const ptrdiff_t row = how.rows ? how.rows[first_row + t] : first_row + t;
    float* const out = how.out + row * how.stride + how.column0 + column;
    const float* const residual =
        how.residual ? how.residual + row * how.stride + how.column0 + column : nullptr;
    for (int r = 0; r < valid; r += kLanes) {
      const int n = valid - r < kLanes ? valid - r : kLanes;
      F value = load(from + r);
      if (how.bias) value = add(value, load_part(how.bias + column + r, n));
      if (how.activation != kNone) value = activated(value, how.activation);
      if (how.gated) {
        F up = load(from + width + r);
        if (how.up_bias) up = add(up, load_part(how.up_bias + column + r, n));
        value = mul(value, up);
      }
      if (residual) value = add(value, load_part(residual + r, n));
      if (n == kLanes)
        store(out + r, value);
      else
        store_part(out + r, value, n);
    }
  }
}

// ---- The table ------------------------------------------------------------------------------------

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
void direct_count(const CodeLayout& layout, const uint8_t* block, const uint8_t* panel, int count,
                  float* acc) {
  by_count<kMostDirect>(count, [&]<int kTokens>() {
    direct_tile<kCode, kTokens, kBytes, kHalves, Sums<kTokens, kBytes>>(layout, block, panel, acc);
  });
}

/// kFloat8 has no integer products: it is expanded.
void direct(const CodeLayout& layout, const uint8_t* block, const uint8_t* panel, int count, bool bytes,
            float* acc) {
  by_code(layout.code, [&]<CodeKind kCode>() {
    if constexpr (bytes_serve_code<kCode>())
      if (bytes) return direct_count<kCode, true, false>(layout, block, panel, count, acc);
    if constexpr (kCode == kFloat4)
      if (layout.kind == kE4m3) return direct_count<kCode, false, true>(layout, block, panel, count, acc);
    if constexpr (kCode != kFloat8) direct_count<kCode, false, false>(layout, block, panel, count, acc);
  });
}

void direct_planes(const CodeLayout& layout, const uint8_t* block, const uint8_t* panel, int count,
                   float* acc) {
  if constexpr (kMostPlanes > 0)
    by_count<kMostPlanes>(count, [&]<int kTokens>() {
      direct_tile<kCode4, kTokens, true, false, PlaneSums<kTokens>>(layout, block, panel, acc);
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
void tile_count(const uint8_t* scratch, const uint8_t* panel, int count, int chunks, float* acc) {
  by_count<kMostTokens>(
      count, [&]<int kTokens>() { scratch_tile<kTokens, kBytes, kHalves>(scratch, panel, chunks, acc); });
}

void tile(const uint8_t* scratch, const uint8_t* panel, int count, int chunks, bool bytes, bool halves,
          float* acc) {
  if constexpr (kBytesServe4)
    if (bytes) return tile_count<true, false>(scratch, panel, count, chunks, acc);
  if (halves) return tile_count<false, true>(scratch, panel, count, chunks, acc);
  tile_count<false, false>(scratch, panel, count, chunks, acc);
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
};

}  // namespace
