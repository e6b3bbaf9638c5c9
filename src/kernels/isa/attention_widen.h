// A page's keys and values as f32, whatever they are kept as: a part of attention_body.h, which includes it
// inside its anonymous namespace. Not a header of its own: no pragma once, no includes.

/// The values that a page's keys hold, as f32: `keys` [key_dim][32] to [32][padded].
inline void values_of_keys(const AttentionCall& c, const float* keys, float* values, size_t padded) {
  const size_t dims = static_cast<size_t>(c.value_dim);
  size_t d = 0;
  for (; d + 8 <= dims; d += 8)
    for (size_t t = 0; t < kAttentionPage; t += 8)
      transpose<PageType::f32>(keys + d * kAttentionPage + t, kAttentionPage, reinterpret_cast<char*>(values),
                               t * padded + d, padded);
  for (; d < dims; ++d)
    for (size_t t = 0; t < kAttentionPage; ++t) values[t * padded + d] = keys[d * kAttentionPage + t];
}

/// A page's keys as f32 [key_dim][32].
template <PageType kType>
void widen_keys(const AttentionCall& c, const PageData& page, float* to) {
  const size_t key_items = static_cast<size_t>(c.key_dim) * kAttentionPage;
  for (size_t i = 0; i < key_items; i += kLanes) {
    if (i % kAttentionPage == 0) run_ahead<kType>(page.next_keys, i);
    v_store(to + i, load_as_f32<kType>(page.keys, i));
  }
}

/// A page's values as f32 [32][padded].
template <PageType kType>
void widen_values(const AttentionCall& c, const PageData& page, float* to, size_t padded) {
  const size_t value_dim = static_cast<size_t>(c.value_dim);
  for (size_t at = 0; at < kAttentionPage * value_dim; at += value_dim, to += padded)
    for (size_t d = 0; d < value_dim; d += kLanes) {
      if (d % 32 == 0) run_ahead<kType>(page.next_values, at + d);
      v_store(to + d, load_as_f32<kType>(page.values, at + d));
    }
}

/// Both as f32 in `work`, whatever they are kept as: keys [key_dim][32], values [32][padded].
inline void widen(const AttentionCall& c, const PageData& page, float* work, size_t padded) {
  float* const values = work + static_cast<size_t>(c.key_dim) * kAttentionPage;
  switch (c.type) {
    case PageType::f32:
      widen_keys<PageType::f32>(c, page, work);
      break;
    case PageType::f16:
      widen_keys<PageType::f16>(c, page, work);
      break;
    case PageType::bf16:
      widen_keys<PageType::bf16>(c, page, work);
      break;
    default:
      widen_coded_keys(c, page.keys, work);
  }
  if (c.latent) return values_of_keys(c, work, values, padded);
  switch (c.value_type) {
    case PageType::f32:
      return widen_values<PageType::f32>(c, page, values, padded);
    case PageType::f16:
      return widen_values<PageType::f16>(c, page, values, padded);
    case PageType::bf16:
      return widen_values<PageType::bf16>(c, page, values, padded);
    default:
      return widen_coded_values(c, page.keys, values, padded);
  }
}
