// The one attention body, over a vector type that each instruction set's unit defines before it includes
// this inside its anonymous namespace: Vec, kLanes, kQueries (queries per register block), kColumns (value
// vectors per register block), Part (8 lanes) with row_max, row_sum, across_max, across_sum, transpose
// and the v_* operations. Every operation is an IEEE one or an fma in a fixed order per query, so neither the
// set, nor the tile, nor the split over workers changes a bit. Scores are kept in powers of two.
// Not a header of its own: no pragma once, no includes.

constexpr int kKeyVecs = kAttentionPage / kLanes;
constexpr int kRows = 24;  // queries between the two products of a page; a multiple of 8 and of kQueries
constexpr float kNone = -__builtin_inff();
constexpr float kLog2E = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

/// x[i] := 2^x[i] for x <= 0; exactly 1 at 0, exactly 0 below -126.5. Cephes' polynomial on [-1/2, 1/2].
/// The values go step by step together: their chains of dependent operations then overlap.
template <int kN>
inline void exp2_all(Vec* x) {
  const Vec magic = v_set(12582912.0f);  // 1.5 * 2^23: the sum's low bits are the rounded integer
  const float terms[6] = {1.339887440266574e-3f, 9.618437357674640e-3f, 5.550332471162809e-2f,
                          2.402264791363012e-1f, 6.931472028550421e-1f, 1.0f};
  Vec t[kN], p[kN];
  for (int i = 0; i < kN; ++i) x[i] = v_at_least(x[i], v_set(-127.0f));
  for (int i = 0; i < kN; ++i) t[i] = v_add(x[i], magic);
  for (int i = 0; i < kN; ++i) x[i] = v_sub(x[i], v_sub(t[i], magic));
  for (int i = 0; i < kN; ++i) p[i] = v_set(1.535336188319500e-4f);
#pragma GCC unroll 6
  for (int k = 0; k < 6; ++k)
    for (int i = 0; i < kN; ++i) p[i] = v_fma(p[i], x[i], v_set(terms[k]));
  for (int i = 0; i < kN; ++i) x[i] = v_mul(p[i], v_power_of_two(t[i]));
}

inline Vec v_exp2(Vec x) {
  exp2_all<1>(&x);
  return x;
}
inline float exp2_one(float x) { return v_first(v_exp2(v_set(x))); }

inline Vec v_tanh(Vec x) {
  const Vec t = v_exp2(v_mul(v_abs(x), v_set(-2.0f * kLog2E)));
  return v_copy_sign(v_div(v_sub(v_set(1.0f), t), v_add(v_set(1.0f), t)), x);
}

inline float larger(float a, float b) { return a > b ? a : b; }
inline int smaller_int(int a, int b) { return a < b ? a : b; }
inline int larger_int(int a, int b) { return a > b ? a : b; }

/// kLanes elements from element `index` on, widened.
template <PageType kType>
inline Vec load_as_f32(const char* base, size_t index) {
  if constexpr (kType == PageType::f32) return v_load(reinterpret_cast<const float*>(base) + index);
  if constexpr (kType == PageType::f16) return v_load_f16(reinterpret_cast<const uint16_t*>(base) + index);
  if constexpr (kType == PageType::bf16) return v_load_bf16(reinterpret_cast<const uint16_t*>(base) + index);
}

template <PageType kType>
inline void store_narrow(char* base, size_t index, Vec x) {
  if constexpr (kType == PageType::f32) v_store(reinterpret_cast<float*>(base) + index, x);
  if constexpr (kType == PageType::f16) v_store_f16(reinterpret_cast<uint16_t*>(base) + index, x);
  if constexpr (kType == PageType::bf16) v_store_bf16(reinterpret_cast<uint16_t*>(base) + index, x);
}

template <PageType kType>
inline void store_one(char* base, size_t index, float x) {
  if constexpr (kType == PageType::f32) reinterpret_cast<float*>(base)[index] = x;
  if constexpr (kType == PageType::f16) reinterpret_cast<uint16_t*>(base)[index] = f16_from(x);
  if constexpr (kType == PageType::bf16) reinterpret_cast<uint16_t*>(base)[index] = bf16_from(x);
}

inline int padded_values(const AttentionCall& c) {
  return (c.value_dim + kAttentionPad - 1) / kAttentionPad * kAttentionPad;
}

inline char* head_of(const AttentionCall& c, const AttentionRow& row, int kv_head, int page) {
  return c.pages + static_cast<size_t>(c.tables[row.table + page]) * c.page_bytes +
         static_cast<size_t>(kv_head) * c.head_bytes;
}

#include "kernels/isa/attention_codes.h"

#include "kernels/isa/attention_append.h"

void load_queries(const AttentionCall& c, const AttentionTile& tile, float* panel) {
  const int group = c.heads / c.kv_heads;
  const size_t run = static_cast<size_t>(group) * static_cast<size_t>(c.key_dim);
  const size_t stride = static_cast<size_t>(c.q_stride);
  const float* q = c.q + static_cast<size_t>(c.rows[tile.row].first + tile.first) * stride +
                   static_cast<size_t>(tile.kv_head) * run;
  // Without a cap the scores come out in powers of two at once.
  const float scale = c.softcap > 0.0f ? c.scale : c.scale * kLog2E;
  for (int i = 0; i < tile.count; ++i, q += stride, panel += run) {
    for (size_t d = 0; d < run; ++d) panel[d] = q[d] * scale;
    if (c.type != PageType::t4) continue;
    // Rotated keys meet queries rotated alike.
    for (int h = 0; h < group; ++h) {
      float* const one = panel + static_cast<size_t>(h) * static_cast<size_t>(c.key_dim);
      turn(one, c.key_split);
      if (c.key_split < c.key_dim) turn(one + c.key_split, c.key_dim - c.key_split);
    }
  }
}

/// The keys of a page that a query sees: lanes lo .. hi - 1, of these the ones whose bit is set.
struct Visible {
  int lo, hi;
  uint32_t bits;
};

/// What was chosen of a page for one query of a tile and one head.
inline uint32_t chosen_bits(const AttentionCall& c, const AttentionTile& tile, int query, int head,
                            int page) {
  if (!c.chosen) return ~0u;
  const size_t token = static_cast<size_t>(c.rows[tile.row].first + query);
  const size_t set = static_cast<size_t>(head * c.chosen_sets / c.heads);
  return c.chosen[(token * static_cast<size_t>(c.chosen_sets) + set) * static_cast<size_t>(c.chosen_words) +
                  static_cast<size_t>(page)];
}

/// The first key that a query at this position of a row sees.
inline int oldest_key(const AttentionCall& c, const AttentionRow& row, int position) {
  position = smaller_int(position, row.position + row.count - row.open);
  if (c.chunk > 0) return position - position % c.chunk;
  return c.window > 0 ? larger_int(0, position - c.window + 1) : 0;
}

/// Behind the last key that a query at this position of a row sees.
inline int end_of_keys(const AttentionCall& c, const AttentionRow& row, int position) {
  if (position >= row.position + row.count - row.open) return row.position + row.count;
  const int end = c.block > 0 ? position - position % c.block + c.block : position + 1;
  return smaller_int(end, row.position + row.count);
}

inline Visible visible(const AttentionCall& c, const AttentionTile& tile, int query, int head,
                       int page_start) {
  const AttentionRow& row = c.rows[tile.row];
  const int position = row.position + query;
  if (c.two_way) {
    const int end = row.position + row.count - page_start;
    if (c.window == 0) return {0, smaller_int(kAttentionPage, end), ~0u};
    return {larger_int(0, position - c.window + 1 - page_start),
            smaller_int(kAttentionPage, smaller_int(end, position + c.window - page_start)), ~0u};
  }
  const uint32_t bits = chosen_bits(c, tile, query, head, page_start / kAttentionPage);
  if (bits == 0) return {0, 0, 0};
  const int lo = larger_int(0, oldest_key(c, row, position) - page_start);
  return {lo, smaller_int(kAttentionPage, end_of_keys(c, row, position) - page_start), bits};
}

/// Touches a cache line of the page that comes next: a page is too short for the hardware to run ahead.
template <PageType kType>
inline void run_ahead(const char* ahead, size_t item) {
  if constexpr (kType != PageType::f32) __builtin_prefetch(ahead + item * sizeof(uint16_t));
}

/// weights[q] := scores of kQ queries against the page's 32 keys.
template <PageType kType, int kQ>
inline void score(const float* queries, size_t key_dim, const char* keys, const char* ahead,
                  float (*weights)[kAttentionPage]) {
  Vec s[kQ][kKeyVecs];
  for (int q = 0; q < kQ; ++q)
    for (int n = 0; n < kKeyVecs; ++n) s[q][n] = v_set(0.0f);
#pragma GCC unroll 4
  for (size_t d = 0; d < key_dim; ++d) {
    Vec w[kQ];
    for (int q = 0; q < kQ; ++q) w[q] = v_set(queries[static_cast<size_t>(q) * key_dim + d]);
    run_ahead<kType>(ahead, d * kAttentionPage);
    for (int n = 0; n < kKeyVecs; ++n) {
      const Vec key = load_as_f32<kType>(keys, d * kAttentionPage + static_cast<size_t>(n * kLanes));
      for (int q = 0; q < kQ; ++q) s[q][n] = v_fma(w[q], key, s[q][n]);
    }
  }
  for (int q = 0; q < kQ; ++q)
    for (int n = 0; n < kKeyVecs; ++n) v_store(weights[q] + n * kLanes, s[q][n]);
}

/// Up to 8 queries: scores to weights, maxima and sums one page further; alpha[q] is what the values summed
/// so far are to be multiplied by.
inline void soften(const AttentionCall& c, const Visible* seen, int count, float (*weights)[kAttentionPage],
                   float* maximum, float* total, float* alpha) {
  Part parts[8];
  for (int q = count; q < 8; ++q) parts[q] = part_zero();
  for (int q = 0; q < count; ++q) {
    Vec s[kKeyVecs];
    for (int n = 0; n < kKeyVecs; ++n) s[n] = v_load(weights[q] + n * kLanes);
    const int lo = seen[q].lo, hi = seen[q].hi;
    const uint32_t bits = seen[q].bits;
    if (c.softcap > 0.0f || lo > 0 || hi < kAttentionPage || bits != ~0u) {
      for (int n = 0; n < kKeyVecs; ++n) {
        if (c.softcap > 0.0f) s[n] = v_mul(v_set(c.softcap * kLog2E), v_tanh(v_div(s[n], v_set(c.softcap))));
        s[n] = v_keep_lanes(s[n], lo - n * kLanes, hi - n * kLanes, v_set(kNone));
        v_store(weights[q] + n * kLanes, s[n]);
      }
      if (bits != ~0u) {
        for (int j = 0; j < kAttentionPage; ++j)
          if (!(bits >> j & 1u)) weights[q][j] = kNone;
        for (int n = 0; n < kKeyVecs; ++n) s[n] = v_load(weights[q] + n * kLanes);
      }
    }
    parts[q] = row_max(s);
  }
  float top[8], base[8], change[16], sums[8];
  across_max(parts, top);
  for (int q = 0; q < 16; ++q) change[q] = 0.0f;
  for (int q = 0; q < count; ++q) {
    top[q] = larger(maximum[q], top[q]);
    base[q] = top[q] == kNone ? 0.0f : top[q];
    change[q] = maximum[q] - base[q];
    maximum[q] = top[q];
  }
  for (int q = 0; q < 8; q += kLanes) v_store(change + q, v_exp2(v_load(change + q)));
  for (int q = 0; q < count; ++q) {
    Vec s[kKeyVecs];
    const Vec shift = v_set(base[q]);
    for (int n = 0; n < kKeyVecs; ++n) s[n] = v_sub(v_load(weights[q] + n * kLanes), shift);
    exp2_all<kKeyVecs>(s);
    for (int n = 0; n < kKeyVecs; ++n) v_store(weights[q] + n * kLanes, s[n]);
    parts[q] = row_sum(s);
  }
  across_sum(parts, sums);
  for (int q = 0; q < count; ++q) {
    alpha[q] = change[q];
    total[q] = __builtin_fmaf(total[q], change[q], sums[q]);
  }
}

/// acc[q] := acc[q] * alpha[q] + sum over keys, in order, of weight * value; kN value vectors at `column`.
template <PageType kType, int kQ, int kN>
inline void add_columns(const float (*weights)[kAttentionPage], const float* alpha, int from, int to,
                        const char* values, const char* ahead, size_t value_stride, size_t column, float* acc,
                        size_t padded) {
  Vec sum[kQ][kN];
  for (int q = 0; q < kQ; ++q) {
    const Vec a = v_set(alpha[q]);
    for (int n = 0; n < kN; ++n)
      sum[q][n] =
          v_mul(v_load(acc + static_cast<size_t>(q) * padded + column + static_cast<size_t>(n * kLanes)), a);
  }
#pragma GCC unroll 4
  for (int j = from; j < to; ++j) {
    const size_t at = static_cast<size_t>(j) * value_stride + column;
    Vec w[kQ];
    for (int q = 0; q < kQ; ++q) w[q] = v_set(weights[q][j]);
    for (int line = 0; line < kN * kLanes; line += 32)
      run_ahead<kType>(ahead, at + static_cast<size_t>(line));
    for (int n = 0; n < kN; ++n) {
      const Vec value = load_as_f32<kType>(values, at + static_cast<size_t>(n * kLanes));
      for (int q = 0; q < kQ; ++q) sum[q][n] = v_fma(w[q], value, sum[q][n]);
    }
  }
  for (int q = 0; q < kQ; ++q)
    for (int n = 0; n < kN; ++n)
      v_store(acc + static_cast<size_t>(q) * padded + column + static_cast<size_t>(n * kLanes), sum[q][n]);
}

template <PageType kType, int kQ>
inline void add_values(const AttentionCall& c, const float (*weights)[kAttentionPage], const float* alpha,
                       int from, int to, const char* values, const char* ahead, size_t value_stride,
                       float* acc, size_t padded) {
  size_t column = 0;
  constexpr size_t kStep = static_cast<size_t>(kColumns) * kLanes;
  const size_t width = (static_cast<size_t>(c.value_dim) + kLanes - 1) / kLanes * kLanes;
  for (; column + kStep <= width; column += kStep)
    add_columns<kType, kQ, kColumns>(weights, alpha, from, to, values, ahead, value_stride, column, acc,
                                     padded);
  if constexpr (kColumns > 2)
    for (; column + 2 * kLanes <= width; column += 2 * kLanes)
      add_columns<kType, kQ, 2>(weights, alpha, from, to, values, ahead, value_stride, column, acc, padded);
  for (; column < width; column += kLanes)
    add_columns<kType, kQ, 1>(weights, alpha, from, to, values, ahead, value_stride, column, acc, padded);
}

/// visit.template operator()<kQ>() for the run-time count `take`, 1 .. kQ.
template <int kQ, class Visit>
inline void for_count(int take, const Visit& visit) {
  if constexpr (kQ > 1)
    if (take < kQ) return for_count<kQ - 1>(take, visit);
  visit.template operator()<kQ>();
}

/// Where a page's data are, and those of the page after it.
struct PageData {
  const char *keys, *values, *next_keys, *next_values;
  size_t value_stride;
};

#include "kernels/isa/attention_widen.h"

/// What the distance from its keys adds to a query's scores, as powers of two.
inline void add_bias(const AttentionCall& c, const AttentionTile& tile, int query, int head, int page_start,
                     float* scores) {
  const AttentionRow& row = c.rows[tile.row];
  const size_t token = static_cast<size_t>(row.first + query);
  const float* bias = c.bias + (token * static_cast<size_t>(c.heads) + static_cast<size_t>(head)) *
                                   static_cast<size_t>(c.reach);
  const int away = row.position + query - page_start;  // of the page's first key
  const int last = smaller_int(away, kAttentionPage - 1);
  for (int j = larger_int(0, away - c.reach + 1); j <= last; ++j)
    scores[j] = __builtin_fmaf(bias[away - j], kLog2E, scores[j]);
}

/// Queries of one register block at `left` to go: four left over go two and two, not three and one.
inline int block_size(int left) {
  if (left == kQueries + 1 && kQueries > 2) return kQueries - 1;
  return left < kQueries ? left : kQueries;
}

template <PageType kType>
void attend_page(const AttentionCall& c, const AttentionTile& tile, int page_start, const float* panel,
                 const PageData& page, float* state, size_t padded) {
  const int group = c.heads / c.kv_heads;
  const int n = tile.count * group;
  const size_t key_dim = static_cast<size_t>(c.key_dim);
  float* const acc = state;
  float* const maximum = state + static_cast<size_t>(n) * padded;
  float* const total = maximum + n;
  for (int i = 0; i < n; i += kRows) {
    const int rows = smaller_int(kRows, n - i);
    Visible seen[kRows];
    // Those that see any of the page stand together.
    int first = rows, last = 0;
    for (int q = 0; q < rows; ++q) {
      seen[q] =
          visible(c, tile, tile.first + (i + q) / group, tile.kv_head * group + (i + q) % group, page_start);
      if (seen[q].hi <= seen[q].lo) continue;
      if (first == rows) first = q;
      last = q + 1;
    }
    alignas(64) float weights[kRows][kAttentionPage];
    float alpha[kRows];
    for (int q = first; q < last;) {
      const int take = block_size(last - q);
      for_count<kQueries>(take, [&]<int kQ>() {
        score<kType, kQ>(panel + static_cast<size_t>(i + q) * key_dim, key_dim, page.keys, page.next_keys,
                         weights + q);
      });
      q += take;
    }
    if (c.bias)
      for (int q = first; q < last; ++q)
        add_bias(c, tile, tile.first + (i + q) / group, tile.kv_head * group + (i + q) % group, page_start,
                 weights[q]);
    for (int q = first; q < last; q += 8)
      soften(c, seen + q, smaller_int(8, last - q), weights + q, maximum + i + q, total + i + q, alpha + q);
    for (int q = first; q < last;) {
      const int take = block_size(last - q);
      int from = kAttentionPage, to = 0;
      for (int k = q; k < q + take; ++k) {
        from = smaller_int(from, seen[k].lo);
        to = larger_int(to, seen[k].hi);
      }
      for_count<kQueries>(take, [&]<int kQ>() {
        add_values<kType, kQ>(c, weights + q, alpha + q, from, to, page.values, page.next_values,
                              page.value_stride, acc + static_cast<size_t>(i + q) * padded, padded);
      });
      q += take;
    }
  }
}

/// Whether a query of the tile may see anything of a page.
inline bool any_chosen(const AttentionCall& c, const AttentionTile& tile, int page) {
  const int group = c.heads / c.kv_heads, first = tile.kv_head * group;
  const int apart = c.chosen_sets > c.kv_heads ? group : 1;  // heads that may differ
  for (int q = 0; q < tile.count; ++q)
    for (int head = first; head < first + apart; ++head)
      if (chosen_bits(c, tile, tile.first + q, head, page) != 0) return true;
  return false;
}

/// kType: of keys and values; i8 stands for all pages that are not of one dense type.
template <PageType kType>
void segment_as(const AttentionCall& c, const AttentionTile& tile, int segment, const float* panel,
                float* state, float* work) {
  const AttentionRow& row = c.rows[tile.row];
  const int n = tile.count * (c.heads / c.kv_heads);
  const size_t padded = static_cast<size_t>(padded_values(c));
  const size_t sums = static_cast<size_t>(n) * padded;
  __builtin_memset(state, 0, (sums + static_cast<size_t>(2 * n)) * sizeof(float));
  for (int i = 0; i < n; ++i) state[sums + static_cast<size_t>(i)] = kNone;

  const int last = (c.two_way ? row.position + row.count
                              : end_of_keys(c, row, row.position + tile.first + tile.count - 1)) -
                   1;
  const int oldest = c.two_way ? 0 : oldest_key(c, row, row.position + tile.first);
  const int from = larger_int(segment * kAttentionSegment, oldest) / kAttentionPage;
  const int to = smaller_int((segment + 1) * kAttentionSegment - 1, last) / kAttentionPage;
  for (int page = from; page <= to; ++page) {
    if (!any_chosen(c, tile, page)) continue;
    PageData data;
    data.keys = head_of(c, row, tile.kv_head, page);
    data.values = data.keys + c.value_offset;
    data.next_keys = page < to ? head_of(c, row, tile.kv_head, page + 1) : data.keys;
    data.next_values = data.next_keys + c.value_offset;
    data.value_stride = static_cast<size_t>(c.value_dim);
    if (c.latent && kType == PageType::f32) {
      values_of_keys(c, reinterpret_cast<const float*>(data.keys), work, padded);
      data.values = reinterpret_cast<const char*>(work);
      data.next_values = data.values;
      data.value_stride = padded;
    }
    // Widening once pays when several register blocks read the page, and where codes become numbers; values
    // in keys are always turned about.
    const bool wide = kType == PageType::i8 || (kType != PageType::f32 && (c.latent || n > 2 * kQueries));
    if (wide) {
      widen(c, data, work, padded);
      data.keys = reinterpret_cast<const char*>(work);
      data.values = data.keys + static_cast<size_t>(c.key_dim) * kAttentionPage * sizeof(float);
      data.value_stride = padded;
      attend_page<PageType::f32>(c, tile, page * kAttentionPage, panel, data, state, padded);
    } else if constexpr (kType != PageType::i8) {
      attend_page<kType>(c, tile, page * kAttentionPage, panel, data, state, padded);
    }
  }
}

void segment(const AttentionCall& c, const AttentionTile& tile, int index, const float* panel, float* state,
             float* work) {
  switch (c.type == c.value_type ? c.type : PageType::i8) {
    case PageType::f32:
      return segment_as<PageType::f32>(c, tile, index, panel, state, work);
    case PageType::f16:
      return segment_as<PageType::f16>(c, tile, index, panel, state, work);
    case PageType::bf16:
      return segment_as<PageType::bf16>(c, tile, index, panel, state, work);
    default:
      return segment_as<PageType::i8>(c, tile, index, panel, state, work);
  }
}

template <PageType kType>
void products_as(const AttentionCall& c, int row, int kv_head, int page, const float* panel, int queries,
                 float* out) {
  const char* keys = head_of(c, c.rows[row], kv_head, page);
  const size_t key_dim = static_cast<size_t>(c.key_dim);
  auto* const to = reinterpret_cast<float (*)[kAttentionPage]>(out);
  for (int q = 0; q < queries;) {
    const int take = block_size(queries - q);
    for_count<kQueries>(take, [&]<int kQ>() {
      score<kType, kQ>(panel + static_cast<size_t>(q) * key_dim, key_dim, keys, keys, to + q);
    });
    q += take;
  }
}

void products(const AttentionCall& c, int row, int kv_head, int page, const float* panel, int queries,
              float* out) {
  switch (c.type) {
    case PageType::f32:
      return products_as<PageType::f32>(c, row, kv_head, page, panel, queries, out);
    case PageType::f16:
      return products_as<PageType::f16>(c, row, kv_head, page, panel, queries, out);
    default:
      return products_as<PageType::bf16>(c, row, kv_head, page, panel, queries, out);  // never coded
  }
}

void merge(float* state, const float* part, int queries, int padded) {
  const size_t width = static_cast<size_t>(padded), sums = static_cast<size_t>(queries) * width;
  float* const maximum = state + sums;
  float* const total = maximum + queries;
  const float* const part_maximum = part + sums;
  const float* const part_total = part_maximum + queries;
  for (int i = 0; i < queries; ++i) {
    if (part_maximum[i] == kNone) continue;
    float* acc = state + static_cast<size_t>(i) * width;
    const float* more = part + static_cast<size_t>(i) * width;
    if (maximum[i] == kNone) {
      maximum[i] = part_maximum[i];
      total[i] = part_total[i];
      __builtin_memcpy(acc, more, width * sizeof(float));
      continue;
    }
    const float top = larger(maximum[i], part_maximum[i]);
    const float old_share = exp2_one(maximum[i] - top), new_share = exp2_one(part_maximum[i] - top);
    maximum[i] = top;
    total[i] = __builtin_fmaf(part_total[i], new_share, total[i] * old_share);
    const Vec a = v_set(old_share), b = v_set(new_share);
    for (size_t d = 0; d < width; d += kLanes)
      v_store(acc + d, v_fma(v_load(more + d), b, v_mul(v_load(acc + d), a)));
  }
}

void finish(const AttentionCall& c, const AttentionTile& tile, float* state) {
  const int group = c.heads / c.kv_heads;
  const int n = tile.count * group;
  const size_t padded = static_cast<size_t>(padded_values(c));
  const float* const maximum = state + static_cast<size_t>(n) * padded;
  const float* const total = maximum + n;
  for (int i = 0; i < n; ++i) {
    const int head = tile.kv_head * group + i % group;
    const float* acc = state + static_cast<size_t>(i) * padded;
    float sum = total[i], share = 1.0f;
    if (c.sinks) {
      const float sink = c.sinks[head] * kLog2E;
      const float top = larger(maximum[i], sink);
      share = exp2_one(maximum[i] - top);
      sum = __builtin_fmaf(sum, share, exp2_one(sink - top));
    }
    // A query that sees nothing gives nothing.
    const float factor = sum == 0.0f ? 0.0f : share / sum;
    const size_t token = static_cast<size_t>(c.rows[tile.row].first + tile.first + i / group);
    if (c.level)
      c.level[token * static_cast<size_t>(c.heads) + static_cast<size_t>(head)] =
          total[i] == 0.0f ? kNone : (maximum[i] + __builtin_log2f(total[i])) * kLn2;
    float* out = c.out + (token * static_cast<size_t>(c.heads) + static_cast<size_t>(head)) *
                             static_cast<size_t>(c.value_dim);
    for (int d = 0; d < c.value_dim; ++d) out[d] = acc[d] * factor;
    if (c.value_type == PageType::t4 || c.value_type == PageType::t3) turn_back(out, c.value_dim);
  }
}
