// Attention over pages of 32 keys, as nodes of MLX's graph: writes the step's keys and values into their
// rows' pages in place, then every query attends. Online softmax page by page, cut at fixed 256-key segments
// that are merged in order, so a query's result depends on its row alone, bit for bit.
// Layout of a page, per kv head: keys [key_dim][32 tokens], then values [32 tokens][value_dim], then the
// scales of what is not dense: 8-bit pages hold whole numbers of steps, a token's largest being 127 of them;
// 4- and 3-bit pages hold places in a codebook after a rotation, which queries and results are turned by as
// well. Thread: model thread (graph building). Owner of the pages: `state`; nodes keep them alive. Sources:
// online softmax, Milakov & Gimelshein 2018; Dao et al. 2022; rotation and codebook, QuaRot (Ashkboos et al.
// 2024), TurboQuant (Zandieh et al. 2025).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/isa/attention_call.h"
#include "tensor/tensor.h"

namespace mlxcel::kernels {

PageType page_type(mx::Dtype dtype);

/// How a layer's keys and values are kept.
struct PageForm {
  PageType keys = PageType::f16, values = PageType::f16;
  int key_split =
      0;  // keys that are not dense: where a second part with scales of its own begins; 0: nowhere
};

/// The part of a page that one layer's keys and values take.
struct PageBlocks {
  PageType type = PageType::f16, value_type = PageType::f16;
  int kv_heads = 0, key_dim = 0, value_dim = 0;
  int key_split = 0;  // key_dim where there is one part
  int latent = 0;     // values are the first so many entries of keys, which are stored alone; value_dim is 0
  size_t head_bytes = 0;    // one kv head's block
  size_t value_offset = 0;  // of the values inside it
  size_t key_scales = 0, value_scales = 0;
  size_t bytes() const { return static_cast<size_t>(kv_heads) * head_bytes; }
  void tell(AttentionCall& call) const;
};
/// Keys are not t3, dense keys and values of one type; parts that are rotated are powers of two up to
/// kMostTurned wide. Without values of their own (value_dim 0) the first part of the keys, if they have
/// parts, is the values.
PageBlocks page_blocks(const PageForm& form, int kv_heads, int key_dim, int value_dim);

/// Memory of pages as one layer sees it.
struct PagePool {
  char* layer = nullptr;  // the layer's part of page 0
  size_t page_bytes = 0;
  PageBlocks blocks;
  std::shared_ptr<const void> owner;
};

/// A step's rows and the pages that hold them; shared by the layers of a page group.
struct AttentionRows {
  std::vector<AttentionRow> rows;
  std::vector<int32_t> tables;
};

struct AttentionForm {
  int heads = 0;
  int window = 0;  // 0: none; W: query i sees keys i-W+1 … i
  float scale = 1.0f;
  float softcap = 0.0f;
  int chunk = 0;  // 0: none; C: query i sees keys i - i % C … i
  int block = 0;  // 0: none; B: blocks of B keys see each other, as far as the step holds them
  std::optional<array> bias =
      {};  // [tokens, heads, reach] f32: added to the score of the key so many places back
  std::optional<array> chosen = {};  // what select_keys() chose: nothing else is seen
};

/// q [tokens, heads, key_dim], k [tokens, kv_heads, key_dim], v [tokens, kv_heads, value_dim] f32 (none where
/// the pages hold values in their keys), sinks [heads] f32 or none -> [tokens, heads * value_dim] f32. CPU
/// only.
array paged_attention(const array& q, const array& k, const std::optional<array>& v,
                      const std::optional<array>& sinks, const PagePool& pool,
                      std::shared_ptr<const AttentionRows> rows, const AttentionForm& form);

/// Beside it [tokens, heads]: the natural logarithm of each query's sum of e^score (sinks apart), by which
/// attentions over several slots become one; minus infinity, and a result of zero, where a query sees
/// nothing.
std::pair<array, array> paged_attention_level(const array& q, const array& k, const std::optional<array>& v,
                                              const PagePool& pool, std::shared_ptr<const AttentionRows> rows,
                                              const AttentionForm& form);

/// The same without memory: tokens offsets[r] .. offsets[r + 1] - 1 see each other (two-way; a window W then
/// reaches W - 1 tokens to each side), or the earlier of them (causal).
array alone_attention(const array& q, const array& k, const array& v, const std::optional<array>& sinks,
                      const std::vector<int>& offsets, const AttentionForm& form, bool causal);

}  // namespace mlxcel::kernels
