// The one attention body, over a vector type that each instruction set's unit defines before it includes
// this inside its anonymous namespace: Vec, kLanes, kQueries (queries per register block), kColumns (value
// vectors per register block), transpose_keys and the v_* operations. Every operation is an IEEE one or an fma in a fixed
// order per query, so neither the set, nor the tile, nor the split over workers changes a bit.
// Not a header of its own: no pragma once, no includes.

constexpr int kKeyVecs = kAttentionPage / kLanes;
constexpr float kNone = -__builtin_inff();

/// exp for x <= 0; exactly 1 at 0, exactly 0 below -87. Cephes' polynomial on [-ln2/2, ln2/2].
inline Vec v_exp(Vec x) {
  const Vec magic = v_set(12582912.0f);  // 1.5 * 2^23: the sum's low bits are the rounded integer
  const Vec t = v_fma(x, v_set(1.44269504088896341f), magic);
  const Vec n = v_sub(t, magic);
  Vec r = v_fma(n, v_set(-0.693359375f), x);
  r = v_fma(n, v_set(2.12194440e-4f), r);
  Vec p = v_set(1.9875691500e-4f);
  p = v_fma(p, r, v_set(1.3981999507e-3f));
  p = v_fma(p, r, v_set(8.3334519073e-3f));
  p = v_fma(p, r, v_set(4.1665795894e-2f));
  p = v_fma(p, r, v_set(1.6666665459e-1f));
  p = v_fma(p, r, v_set(5.0000001201e-1f));
  p = v_add(v_fma(p, v_mul(r, r), r), v_set(1.0f));
  return v_zero_below(x, v_set(-87.0f), v_mul(p, v_power_of_two(t)));
}

inline float exp_one(float x) { return v_first(v_exp(v_set(x))); }

inline Vec v_tanh(Vec x) {
  const Vec a = v_abs(x);
  const Vec t = v_exp(v_mul(a, v_set(-2.0f)));
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

template <PageType kType>
void append_as(const AttentionCall& c, int row_index, int kv_head, int page) {
  const AttentionRow& row = c.rows[row_index];
  char* keys = head_of(c, row, kv_head, page);
  char* values = keys + c.value_offset;
  const int start = page * kAttentionPage;
  const int from = larger_int(row.position, start);
  const int to = smaller_int(row.position + row.count, start + kAttentionPage);
  const size_t key_stride = static_cast<size_t>(c.kv_heads) * static_cast<size_t>(c.key_dim);
  const size_t value_stride = static_cast<size_t>(c.kv_heads) * static_cast<size_t>(c.value_dim);
  const size_t first = static_cast<size_t>(row.first + from - row.position);
  const float* k = c.k + first * key_stride + static_cast<size_t>(kv_head) * static_cast<size_t>(c.key_dim);
  const float* v = c.v + first * value_stride + static_cast<size_t>(kv_head) * static_cast<size_t>(c.value_dim);
  const int count = to - from;
  const size_t lane = static_cast<size_t>(from - start);

  int done = 0;
  for (; done + 8 <= count; done += 8) {
    int d = 0;
    for (; d + 8 <= c.key_dim; d += 8)
      transpose_keys<kType>(k + static_cast<size_t>(done) * key_stride + d, key_stride, keys,
                            static_cast<size_t>(d) * kAttentionPage + lane + static_cast<size_t>(done));
    for (; d < c.key_dim; ++d)
      for (int t = done; t < done + 8; ++t)
        store_one<kType>(keys, static_cast<size_t>(d) * kAttentionPage + lane + static_cast<size_t>(t),
                         k[static_cast<size_t>(t) * key_stride + static_cast<size_t>(d)]);
  }
  for (int t = done; t < count; ++t)
    for (int d = 0; d < c.key_dim; ++d)
      store_one<kType>(keys, static_cast<size_t>(d) * kAttentionPage + lane + static_cast<size_t>(t),
                       k[static_cast<size_t>(t) * key_stride + static_cast<size_t>(d)]);

  for (int t = 0; t < count; ++t) {
    const float* from_row = v + static_cast<size_t>(t) * value_stride;
    const size_t to_row = (lane + static_cast<size_t>(t)) * static_cast<size_t>(c.value_dim);
    int d = 0;
    for (; d + kLanes <= c.value_dim; d += kLanes)
      store_narrow<kType>(values, to_row + static_cast<size_t>(d), v_load(from_row + d));
    for (; d < c.value_dim; ++d) store_one<kType>(values, to_row + static_cast<size_t>(d), from_row[d]);
  }
}

void append(const AttentionCall& c, int row, int kv_head, int page) {
  switch (c.type) {
    case PageType::f32: return append_as<PageType::f32>(c, row, kv_head, page);
    case PageType::f16: return append_as<PageType::f16>(c, row, kv_head, page);
    case PageType::bf16: return append_as<PageType::bf16>(c, row, kv_head, page);
  }
}

void load_queries(const AttentionCall& c, const AttentionTile& tile, float* panel) {
  const int group = c.heads / c.kv_heads;
  const size_t run = static_cast<size_t>(group) * static_cast<size_t>(c.key_dim);
  const size_t stride = static_cast<size_t>(c.heads) * static_cast<size_t>(c.key_dim);
  const float* q = c.q + static_cast<size_t>(c.rows[tile.row].first + tile.first) * stride +
                   static_cast<size_t>(tile.kv_head) * run;
  for (int i = 0; i < tile.count; ++i, q += stride, panel += run)
    for (size_t d = 0; d < run; ++d) panel[d] = q[d] * c.scale;
}

/// The keys of a page that a query sees: lanes lo .. hi - 1.
struct Visible {
  int lo, hi;
};

inline Visible visible(const AttentionCall& c, const AttentionRow& row, int query, int page_start) {
  if (c.two_way) return {0, smaller_int(kAttentionPage, row.position + row.count - page_start)};
  const int position = row.position + query;
  const int lo = c.window > 0 ? larger_int(0, position - c.window + 1 - page_start) : 0;
  return {lo, smaller_int(kAttentionPage, position + 1 - page_start)};
}

/// acc[q] := acc[q] * alpha[q] + sum over keys, in order, of weight * value; kN value vectors at `column`.
template <PageType kType, int kQ, int kN>
inline void add_values(const float (*weights)[kAttentionPage], const float* alpha, int from, int to, const char* values,
                       size_t value_stride, size_t column, float* acc, size_t padded) {
  Vec sum[kQ][kN];
  for (int q = 0; q < kQ; ++q) {
    const Vec a = v_set(alpha[q]);
    for (int n = 0; n < kN; ++n)
      sum[q][n] = v_mul(v_load(acc + static_cast<size_t>(q) * padded + column + static_cast<size_t>(n * kLanes)), a);
  }
  for (int j = from; j < to; ++j) {
    const size_t at = static_cast<size_t>(j) * value_stride + column;
    Vec w[kQ];
    for (int q = 0; q < kQ; ++q) w[q] = v_set(weights[q][j]);
    for (int n = 0; n < kN; ++n) {
      const Vec value = load_as_f32<kType>(values, at + static_cast<size_t>(n * kLanes));
      for (int q = 0; q < kQ; ++q) sum[q][n] = v_fma(w[q], value, sum[q][n]);
    }
  }
  for (int q = 0; q < kQ; ++q)
    for (int n = 0; n < kN; ++n)
      v_store(acc + static_cast<size_t>(q) * padded + column + static_cast<size_t>(n * kLanes), sum[q][n]);
}

/// One page for kQ queries of a tile.
template <PageType kType, int kQ>
inline void attend_block(const AttentionCall& c, const Visible* seen, const float* queries, const char* keys,
                         const char* values, size_t value_stride, float* maximum, float* total, float* acc,
                         size_t padded) {
  Vec s[kQ][kKeyVecs];
  for (int q = 0; q < kQ; ++q)
    for (int n = 0; n < kKeyVecs; ++n) s[q][n] = v_set(0.0f);
  const size_t key_dim = static_cast<size_t>(c.key_dim);
  for (size_t d = 0; d < key_dim; ++d) {
    Vec w[kQ];
    for (int q = 0; q < kQ; ++q) w[q] = v_set(queries[static_cast<size_t>(q) * key_dim + d]);
    for (int n = 0; n < kKeyVecs; ++n) {
      const Vec key = load_as_f32<kType>(keys, d * kAttentionPage + static_cast<size_t>(n * kLanes));
      for (int q = 0; q < kQ; ++q) s[q][n] = v_fma(w[q], key, s[q][n]);
    }
  }

  float weights[kQ][kAttentionPage];
  float alpha[kQ];
  int from = kAttentionPage, to = 0;
  for (int q = 0; q < kQ; ++q) {
    if (c.softcap > 0.0f) {
      const Vec cap = v_set(c.softcap);
      for (int n = 0; n < kKeyVecs; ++n) s[q][n] = v_mul(cap, v_tanh(v_div(s[q][n], cap)));
    }
    const int lo = seen[q].lo, hi = seen[q].hi;
    if (lo > 0 || hi < kAttentionPage)
      for (int n = 0; n < kKeyVecs; ++n) s[q][n] = v_keep_lanes(s[q][n], lo - n * kLanes, hi - n * kLanes, v_set(kNone));
    if (hi > lo) {
      from = smaller_int(from, lo);
      to = larger_int(to, hi);
    }
    const float top = larger(maximum[q], page_max(s[q]));
    const float base = top == kNone ? 0.0f : top;
    alpha[q] = maximum[q] - base;
    maximum[q] = top;
    const Vec shift = v_set(base);
    for (int n = 0; n < kKeyVecs; ++n) {
      s[q][n] = v_exp(v_sub(s[q][n], shift));
      v_store(weights[q] + n * kLanes, s[q][n]);
    }
  }
  for (int q = 0; q < kQ; ++q) {
    alpha[q] = exp_one(alpha[q]);
    total[q] = __builtin_fmaf(total[q], alpha[q], page_sum(s[q]));
  }

  size_t column = 0;
  constexpr size_t kStep = static_cast<size_t>(kColumns) * kLanes;
  const size_t width = (static_cast<size_t>(c.value_dim) + kLanes - 1) / kLanes * kLanes;
  for (; column + kStep <= width; column += kStep)
    add_values<kType, kQ, kColumns>(weights, alpha, from, to, values, value_stride, column, acc, padded);
  if constexpr (kColumns > 2)
    for (; column + 2 * kLanes <= width; column += 2 * kLanes)
      add_values<kType, kQ, 2>(weights, alpha, from, to, values, value_stride, column, acc, padded);
  for (; column < width; column += kLanes)
    add_values<kType, kQ, 1>(weights, alpha, from, to, values, value_stride, column, acc, padded);
}

/// attend_block for `take` queries, 1 .. kQ.
template <PageType kType, int kQ>
inline void attend_some(int take, const AttentionCall& c, const Visible* seen, const float* queries, const char* keys,
                        const char* values, size_t value_stride, float* maximum, float* total, float* acc,
                        size_t padded) {
  if constexpr (kQ > 1)
    if (take < kQ)
      return attend_some<kType, kQ - 1>(take, c, seen, queries, keys, values, value_stride, maximum, total, acc, padded);
  attend_block<kType, kQ>(c, seen, queries, keys, values, value_stride, maximum, total, acc, padded);
}

/// A page's keys and values as f32 in `work`: keys [key_dim][32], values [32][padded].
template <PageType kType>
void widen(const AttentionCall& c, const char* keys, const char* values, float* work, size_t padded) {
  const size_t key_items = static_cast<size_t>(c.key_dim) * kAttentionPage;
  for (size_t i = 0; i < key_items; i += kLanes) v_store(work + i, load_as_f32<kType>(keys, i));
  float* to = work + key_items;
  for (int j = 0; j < kAttentionPage; ++j, to += padded)
    for (size_t d = 0; d < static_cast<size_t>(c.value_dim); d += kLanes)
      v_store(to + d, load_as_f32<kType>(values, static_cast<size_t>(j) * static_cast<size_t>(c.value_dim) + d));
}

template <PageType kType>
void attend_page(const AttentionCall& c, const AttentionTile& tile, int page_start, const float* panel,
                 const char* keys, const char* values, size_t value_stride, float* state, size_t padded) {
  const AttentionRow& row = c.rows[tile.row];
  const int group = c.heads / c.kv_heads;
  const int n = tile.count * group;
  float* maximum = state;
  float* total = state + n;
  float* acc = state + 2 * n;
  for (int i = 0; i < n;) {
    const int left = n - i;
    // Four left over: two and two, rather than three and one.
    const int take = left >= kQueries ? (left == kQueries + 1 && kQueries > 2 ? kQueries - 1 : kQueries) : left;
    Visible seen[kQueries];
    bool any = false;
    for (int q = 0; q < take; ++q) {
      seen[q] = visible(c, row, tile.first + (i + q) / group, page_start);
      any = any || seen[q].hi > seen[q].lo;
    }
    if (any) {
      const float* queries = panel + static_cast<size_t>(i) * static_cast<size_t>(c.key_dim);
      float* block_acc = acc + static_cast<size_t>(i) * padded;
      attend_some<kType, kQueries>(take, c, seen, queries, keys, values, value_stride, maximum + i, total + i, block_acc,
                                   padded);
    }
    i += take;
  }
}

template <PageType kType>
void segment_as(const AttentionCall& c, const AttentionTile& tile, int segment, const float* panel, float* state,
                float* work) {
  const AttentionRow& row = c.rows[tile.row];
  const int n = tile.count * (c.heads / c.kv_heads);
  const size_t padded = static_cast<size_t>(padded_values(c));
  for (int i = 0; i < n; ++i) state[i] = kNone;
  __builtin_memset(state + n, 0, (static_cast<size_t>(n) + static_cast<size_t>(n) * padded) * sizeof(float));

  const int last = row.position + (c.two_way ? row.count : tile.first + tile.count) - 1;
  const int oldest = !c.two_way && c.window > 0 ? larger_int(0, row.position + tile.first - c.window + 1) : 0;
  const int from = larger_int(segment * kAttentionSegment, oldest) / kAttentionPage;
  const int to = smaller_int((segment + 1) * kAttentionSegment - 1, last) / kAttentionPage;
  for (int page = from; page <= to; ++page) {
    const char* keys = head_of(c, row, tile.kv_head, page);
    const char* values = keys + c.value_offset;
    // Widening once pays when several register blocks read the page.
    if (kType != PageType::f32 && n > 2 * kQueries) {
      widen<kType>(c, keys, values, work, padded);
      const char* wide = reinterpret_cast<const char*>(work);
      attend_page<PageType::f32>(c, tile, page * kAttentionPage, panel, wide,
                                 wide + static_cast<size_t>(c.key_dim) * kAttentionPage * sizeof(float), padded, state,
                                 padded);
    } else {
      attend_page<kType>(c, tile, page * kAttentionPage, panel, keys, values, static_cast<size_t>(c.value_dim), state,
                         padded);
    }
  }
}

void segment(const AttentionCall& c, const AttentionTile& tile, int index, const float* panel, float* state,
             float* work) {
  switch (c.type) {
    case PageType::f32: return segment_as<PageType::f32>(c, tile, index, panel, state, work);
    case PageType::f16: return segment_as<PageType::f16>(c, tile, index, panel, state, work);
    case PageType::bf16: return segment_as<PageType::bf16>(c, tile, index, panel, state, work);
  }
}

void merge(float* total, const float* part, int queries, int padded) {
  for (int i = 0; i < queries; ++i) {
    if (part[i] == kNone) continue;
    float* acc = total + 2 * queries + static_cast<size_t>(i) * static_cast<size_t>(padded);
    const float* more = part + 2 * queries + static_cast<size_t>(i) * static_cast<size_t>(padded);
    if (total[i] == kNone) {
      total[i] = part[i];
      total[queries + i] = part[queries + i];
      __builtin_memcpy(acc, more, static_cast<size_t>(padded) * sizeof(float));
      continue;
    }
    const float top = larger(total[i], part[i]);
    const float old_share = exp_one(total[i] - top), new_share = exp_one(part[i] - top);
    total[i] = top;
    total[queries + i] = __builtin_fmaf(part[queries + i], new_share, total[queries + i] * old_share);
    const Vec a = v_set(old_share), b = v_set(new_share);
    for (int d = 0; d < padded; d += kLanes) v_store(acc + d, v_fma(v_load(more + d), b, v_mul(v_load(acc + d), a)));
  }
}

void finish(const AttentionCall& c, const AttentionTile& tile, float* total) {
  const int group = c.heads / c.kv_heads;
  const int n = tile.count * group;
  const size_t padded = static_cast<size_t>(padded_values(c));
  for (int i = 0; i < n; ++i) {
    const int head = tile.kv_head * group + i % group;
    const float* acc = total + 2 * n + static_cast<size_t>(i) * padded;
    float sum = total[n + i], share = 1.0f;
    if (c.sinks) {
      const float top = larger(total[i], c.sinks[head]);
      share = exp_one(total[i] - top);
      sum = __builtin_fmaf(sum, share, exp_one(c.sinks[head] - top));
    }
    const float factor = share / sum;
    const size_t token = static_cast<size_t>(c.rows[tile.row].first + tile.first + i / group);
    float* out = c.out + (token * static_cast<size_t>(c.heads) + static_cast<size_t>(head)) * static_cast<size_t>(c.value_dim);
    for (int d = 0; d < c.value_dim; ++d) out[d] = acc[d] * factor;
  }
}
