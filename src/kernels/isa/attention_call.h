// What an attention body sees: plain memory, no graph. Included by the bodies of every instruction set, so it
// holds plain data only (rule in dispatch.h). Layouts: attention.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mlxcel::kernels {

/// How numbers lie in pages. i8: whole numbers of steps. t4, t3: rotated, then places in a codebook of 16 or
/// 8 levels (values only for t3).
enum class PageType { f32, f16, bf16, i8, t4, t3 };
inline constexpr bool is_dense(PageType type) { return type <= PageType::bf16; }
/// The widest part of a head that is rotated.
inline constexpr int kMostTurned = 4096;

/// One row of the step: `count` queries at positions position, position + 1, …
struct AttentionRow {
  int first = 0;  // its first token in the step
  int count = 0;
  int position = 0;  // of that token: keys 0 .. position - 1 lie in pages already
  int table = 0;     // where its page numbers begin in `pages`
  int open = 0;      // its last so many queries see each other, and what the first of them sees
};

struct AttentionCall {
  const float* q;                          // [tokens, heads, key_dim]
  const float* k;                          // [tokens, kv_heads, key_dim]
  const float* v;                          // [tokens, kv_heads, value_dim]
  ptrdiff_t q_stride, k_stride, v_stride;  // floats from token to token
  const float* sinks;                      // [heads] or null
  float* out;                              // [tokens, heads * value_dim]
  float* level;  // [tokens, heads]: ln of a query's sum of e^score; null: not wanted
  char* pages;   // head 0 of page 0
  size_t page_bytes, head_bytes, value_offset;
  size_t key_scales, value_scales;  // f32, [parts][32] and [32], where keys or values are not dense
  PageType type, value_type;
  int key_split;  // keys that are not dense: [0, key_split) and the rest have scales of their own
  int heads, kv_heads, key_dim, value_dim;
  float scale, softcap;
  int window;   // 0: none
  int chunk;    // 0: none
  int block;    // 0: none; B: query i also sees what its row's step holds of keys i + 1 … i - i % B + B - 1
  int two_way;  // every query sees the whole row
  const AttentionRow* rows;
  const int32_t* tables;
  int latent;  // values are the first value_dim entries of keys: none of their own are stored
  const uint32_t*
      chosen;  // [tokens, chosen_sets, chosen_words]: bit j of word p lets key 32 p + j be seen; null: all
  const float* bias;  // [tokens, heads, reach]: added to the score of the key so many places back; null: none
  int reach;
  int chosen_sets, chosen_words;  // sets: a divisor of heads
};

/// Queries of one row that meet the same keys: `count` from the row's query `first` on, for each of the
/// heads / kv_heads query heads of one kv head. They are numbered query by query, head within query.
struct AttentionTile {
  int row, kv_head, first, count;
};

inline constexpr int kAttentionPage = 32;      // keys
inline constexpr int kAttentionSegment = 256;  // keys; a softmax is cut here, whatever runs it
inline constexpr int kAttentionPad = 16;       // values per query are padded to this many floats

/// A tile's running softmax: weighted values [n][padded value_dim], maximum [n], sum [n].
struct AttentionBodies {
  /// Writes the step's tokens that fall into one page of a row, for one kv head.
  void (*append)(const AttentionCall&, int row, int kv_head, int page);
  /// panel [n][key_dim]: the tile's queries, scaled.
  void (*load_queries)(const AttentionCall&, const AttentionTile&, float* panel);
  /// The running softmax over one segment, from nothing. `work` holds one widened page.
  void (*segment)(const AttentionCall&, const AttentionTile&, int segment, const float* panel, float* state,
                  float* work);
  /// state := state followed by part. An empty side changes no bit of the other.
  void (*merge)(float* state, const float* part, int queries, int padded);
  /// out [queries][32]: products of panel [queries][key_dim] with a page's keys.
  void (*products)(const AttentionCall&, int row, int kv_head, int page, const float* panel, int queries,
                   float* out);
  /// Adds the sinks, divides, writes the tile's part of `out`.
  void (*finish)(const AttentionCall&, const AttentionTile&, float* state);
};

extern const AttentionBodies kAttentionGeneric;
extern const AttentionBodies kAttentionAvx2;
extern const AttentionBodies kAttentionAvx512;

}  // namespace mlxcel::kernels
