// Writing a step's keys and values into pages: a part of attention_body.h, which includes it inside its
// anonymous namespace. Not a header of its own: no pragma once, no includes.

template <PageType kType>
void append_keys(const AttentionCall& c, const Fresh& f) {
  const float* const k = f.k;
  char* const keys = f.head;
  const size_t key_stride = f.k_stride, lane = f.lane;
  const int count = f.count;
  int done = 0;
  for (; done + 8 <= count; done += 8) {
    int d = 0;
    for (; d + 8 <= c.key_dim; d += 8)
      transpose<kType>(k + static_cast<size_t>(done) * key_stride + d, key_stride, keys,
                       static_cast<size_t>(d) * kAttentionPage + lane + static_cast<size_t>(done),
                       kAttentionPage);
    for (; d < c.key_dim; ++d)
      for (int t = done; t < done + 8; ++t)
        store_one<kType>(keys, static_cast<size_t>(d) * kAttentionPage + lane + static_cast<size_t>(t),
                         k[static_cast<size_t>(t) * key_stride + static_cast<size_t>(d)]);
  }
  for (int t = done; t < count; ++t)
    for (int d = 0; d < c.key_dim; ++d)
      store_one<kType>(keys, static_cast<size_t>(d) * kAttentionPage + lane + static_cast<size_t>(t),
                       k[static_cast<size_t>(t) * key_stride + static_cast<size_t>(d)]);
}

template <PageType kType>
void append_values(const AttentionCall& c, const Fresh& f) {
  char* const values = f.head + c.value_offset;
  for (int t = 0; t < f.count; ++t) {
    const float* from_row = f.v + static_cast<size_t>(t) * f.v_stride;
    const size_t to_row = (f.lane + static_cast<size_t>(t)) * static_cast<size_t>(c.value_dim);
    int d = 0;
    for (; d + kLanes <= c.value_dim; d += kLanes)
      store_narrow<kType>(values, to_row + static_cast<size_t>(d), v_load(from_row + d));
    for (; d < c.value_dim; ++d) store_one<kType>(values, to_row + static_cast<size_t>(d), from_row[d]);
  }
}

void append(const AttentionCall& c, int row_index, int kv_head, int page) {
  const AttentionRow& row = c.rows[row_index];
  const int start = page * kAttentionPage;
  const int from = larger_int(row.position, start);
  const int to = smaller_int(row.position + row.count, start + kAttentionPage);
  const size_t first = static_cast<size_t>(row.first + from - row.position),
               head = static_cast<size_t>(kv_head);
  Fresh f;
  f.k_stride = static_cast<size_t>(c.k_stride);
  f.v_stride = static_cast<size_t>(c.v_stride);
  f.k = c.k + first * f.k_stride + head * static_cast<size_t>(c.key_dim);
  f.v = c.v ? c.v + first * f.v_stride + head * static_cast<size_t>(c.value_dim) : nullptr;
  f.head = head_of(c, row, kv_head, page);
  f.lane = static_cast<size_t>(from - start);
  f.count = to - from;
  switch (c.type) {
    case PageType::f32:
      append_keys<PageType::f32>(c, f);
      break;
    case PageType::f16:
      append_keys<PageType::f16>(c, f);
      break;
    case PageType::bf16:
      append_keys<PageType::bf16>(c, f);
      break;
    default:
      append_coded_keys(c, f);
  }
  if (c.latent || !c.v) return;
  switch (c.value_type) {
    case PageType::f32:
      return append_values<PageType::f32>(c, f);
    case PageType::f16:
      return append_values<PageType::f16>(c, f);
    case PageType::bf16:
      return append_values<PageType::bf16>(c, f);
    default:
      return append_coded_values(c, f);
  }
}
