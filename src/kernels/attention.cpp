#include "kernels/attention.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "kernels/attention_plan.h"
#include "kernels/primitive.h"

namespace mlxcel::kernels {
namespace {

// Bodies read whole vectors: up to 15 f32 past the values of the last token.
constexpr size_t kSlack = 64;
size_t up(size_t value, size_t step) { return (value + step - 1) / step * step; }

/// The arrays of a call in order, and where the optional ones stand.
struct Inputs {
  std::vector<array> arrays;
  int v = -1, sinks = -1, chosen = -1, bias = -1;
  int add(array x) {
    arrays.push_back(std::move(x));
    return static_cast<int>(arrays.size()) - 1;
  }
};

/// Checks the shapes of a call.
Inputs inputs_of(const array& q, const array& k, const std::optional<array>& v,
                 const std::optional<array>& sinks, const AttentionForm& form) {
  const auto wrong = [](const char* what, const array& x, const std::string& want) {
    fail(ErrorKind::internal, "attention: {} is {}, expected {}", what, mlxcel::to_string(x.shape()), want);
  };
  if (q.ndim() != 3 || q.shape(1) != form.heads)
    wrong("q", q, fmt::format("[tokens, {}, key_dim]", form.heads));
  if (k.ndim() != 3 || k.shape(0) != q.shape(0) || k.shape(2) != q.shape(2) || k.shape(1) < 1 ||
      form.heads % k.shape(1) != 0)
    wrong("k", k, fmt::format("[{}, a divisor of {}, {}]", q.shape(0), form.heads, q.shape(2)));
  if (v && (v->ndim() != 3 || v->shape(0) != q.shape(0) || v->shape(1) != k.shape(1)))
    wrong("v", *v, fmt::format("[{}, {}, value_dim]", q.shape(0), k.shape(1)));
  Inputs inputs{{mx::astype(q, mx::float32), mx::astype(k, mx::float32)}};
  if (v) inputs.v = inputs.add(mx::astype(*v, mx::float32));
  if (sinks) {
    if (sinks->shape() != Shape{form.heads}) wrong("sinks", *sinks, fmt::format("[{}]", form.heads));
    inputs.sinks = inputs.add(mx::astype(*sinks, mx::float32));
  }
  if (form.chosen) {
    const array& chosen = *form.chosen;
    if (chosen.dtype() != mx::uint32 || chosen.ndim() != 3 || chosen.shape(0) != q.shape(0) ||
        chosen.shape(1) < 1 || form.heads % chosen.shape(1) != 0)
      wrong("the choice", chosen, fmt::format("[{}, a divisor of {}, pages] uint32", q.shape(0), form.heads));
    inputs.chosen = inputs.add(chosen);
  }
  if (form.bias) {
    const array& bias = *form.bias;
    if (bias.ndim() != 3 || bias.shape(0) != q.shape(0) || bias.shape(1) != form.heads || form.softcap > 0.0f)
      wrong("the bias", bias, fmt::format("[{}, {}, reach], and no cap", q.shape(0), form.heads));
    inputs.bias = inputs.add(mx::astype(bias, mx::float32));
  }
  return inputs;
}

/// What of a call is fixed while its graph is built.
struct Fixed {
  int v, sinks, chosen, chosen_sets, chosen_words, bias, reach;
  int heads, window, chunk, block;
  float scale, softcap;
  PageBlocks blocks;
};

Fixed fixed(const Inputs& inputs, const AttentionForm& form, const PageBlocks& blocks) {
  return {.v = inputs.v,
          .sinks = inputs.sinks,
          .chosen = inputs.chosen,
          .chosen_sets = form.chosen ? form.chosen->shape(1) : 0,
          .chosen_words = form.chosen ? form.chosen->shape(2) : 0,
          .bias = inputs.bias,
          .reach = form.bias ? form.bias->shape(2) : 0,
          .heads = form.heads,
          .window = form.window,
          .chunk = form.chunk,
          .block = form.block,
          .scale = form.scale,
          .softcap = form.softcap,
          .blocks = blocks};
}

AttentionCall call_of(const Buffers& buffers, const Fixed& f, const AttentionRows& rows, char* pages,
                      size_t page_bytes) {
  AttentionCall call{};
  call.q = buffers.input<float>(0);
  call.k = buffers.input<float>(1);
  call.v = f.v < 0 ? nullptr : buffers.input<float>(f.v);
  call.sinks = f.sinks < 0 ? nullptr : buffers.input<float>(f.sinks);
  call.chosen = f.chosen < 0 ? nullptr : buffers.input<uint32_t>(f.chosen);
  call.chosen_sets = f.chosen_sets;
  call.chosen_words = f.chosen_words;
  call.bias = f.bias < 0 ? nullptr : buffers.input<float>(f.bias);
  call.reach = f.reach;
  call.out = buffers.output<float>();
  call.pages = pages;
  call.page_bytes = page_bytes;
  f.blocks.tell(call);
  call.heads = f.heads;
  call.scale = f.scale;
  call.softcap = f.softcap;
  call.window = f.window;
  call.chunk = f.chunk;
  call.block = f.block;
  call.q_stride = buffers.stride[0];
  call.k_stride = buffers.stride[1];
  if (f.v >= 0) call.v_stride = buffers.stride[static_cast<size_t>(f.v)];
  call.rows = rows.rows.data();
  call.tables = rows.tables.data();
  return call;
}

/// The inputs whose tokens may stand apart: q, k and v cut out of one projection.
constexpr unsigned kStrided = 7u;

}  // namespace

PageType page_type(mx::Dtype dtype) {
  if (dtype == mx::float32) return PageType::f32;
  if (dtype == mx::float16) return PageType::f16;
  if (dtype == mx::bfloat16) return PageType::bf16;
  fail(ErrorKind::unsupported, "KV pages: type code {}, expected float32, float16 or bfloat16",
       static_cast<int>(dtype.val()));
}

namespace {

/// Bytes of 32 tokens of `dim` values.
size_t plane_bytes(PageType type, int dim) {
  const size_t count = static_cast<size_t>(dim) * kAttentionPage;
  switch (type) {
    case PageType::f32:
      return count * 4;
    case PageType::f16:
    case PageType::bf16:
      return count * 2;
    case PageType::i8:
      return count;
    case PageType::t4:
      return count / 2;
    case PageType::t3:
      return static_cast<size_t>(std::max(dim, 8)) * kAttentionPage * 3 / 8;
  }
  return 0;
}

bool turned(PageType type) { return type == PageType::t4 || type == PageType::t3; }
bool turnable(int dim) { return dim >= 2 && dim <= kMostTurned && (dim & (dim - 1)) == 0; }

}  // namespace

PageBlocks page_blocks(const PageForm& form, int kv_heads, int key_dim, int value_dim) {
  PageBlocks blocks{form.keys, value_dim > 0 ? form.values : form.keys, kv_heads, key_dim, value_dim};
  if (value_dim == 0) blocks.latent = form.key_split;
  const bool split = !is_dense(form.keys) && form.key_split > 0 && form.key_split < key_dim;
  blocks.key_split = split ? form.key_split : key_dim;
  if (form.keys == PageType::t3 ||
      (is_dense(form.keys) && is_dense(blocks.value_type) && form.keys != blocks.value_type))
    fail(ErrorKind::internal, "KV pages: keys of kind {} with values of kind {}", static_cast<int>(form.keys),
         static_cast<int>(form.values));
  if ((turned(form.keys) &&
       (!turnable(blocks.key_split) || (split && !turnable(key_dim - form.key_split)))) ||
      (value_dim > 0 && turned(form.values) && !turnable(value_dim)))
    fail(ErrorKind::internal, "KV pages: heads of {} and {} cannot be rotated", key_dim, value_dim);
  blocks.value_offset = up(plane_bytes(form.keys, key_dim), 64);
  blocks.head_bytes = up(blocks.value_offset + (value_dim > 0 ? plane_bytes(form.values, value_dim) : 0), 64);
  // A dense row narrower than a vector is read past its end; the slack keeps that inside the block.
  if (value_dim > 0 && is_dense(form.values) && value_dim % kAttentionPad != 0) blocks.head_bytes += kSlack;
  const auto scales = [&](int parts) {
    const size_t at = blocks.head_bytes;
    blocks.head_bytes += static_cast<size_t>(parts) * kAttentionPage * sizeof(float);
    return at;
  };
  if (!is_dense(form.keys)) blocks.key_scales = scales(split ? 2 : 1);
  if (value_dim > 0 && !is_dense(form.values)) blocks.value_scales = scales(1);
  return blocks;
}

void PageBlocks::tell(AttentionCall& call) const {
  call.head_bytes = head_bytes;
  call.value_offset = value_offset;
  call.key_scales = key_scales;
  call.value_scales = value_scales;
  call.type = type;
  call.value_type = value_type;
  call.key_split = key_split;
  call.kv_heads = kv_heads;
  call.key_dim = key_dim;
  call.value_dim = latent > 0 ? latent : value_dim;
  call.latent = latent > 0 ? 1 : 0;
}

namespace {

/// The width of a call's results, once its shapes fit the pages.
int checked_width(const array& k, const std::optional<array>& v, const PageBlocks& blocks) {
  const int width = blocks.latent > 0 ? blocks.latent : blocks.value_dim;
  if (k.shape(1) != blocks.kv_heads || k.shape(2) != blocks.key_dim ||
      v.has_value() != (blocks.value_dim > 0) || (v && v->shape(2) != width) || width < 1 ||
      blocks.latent > blocks.key_dim)
    fail(ErrorKind::internal, "attention: k {} and v {}, pages hold {} heads of {} and {}, latent {}",
         mlxcel::to_string(k.shape()), v ? mlxcel::to_string(v->shape()) : "none", blocks.kv_heads,
         blocks.key_dim, blocks.value_dim, blocks.latent);
  return width;
}

}  // namespace

array paged_attention(const array& q, const array& k, const std::optional<array>& v,
                      const std::optional<array>& sinks, const PagePool& pool,
                      std::shared_ptr<const AttentionRows> rows, const AttentionForm& form) {
  auto inputs = inputs_of(q, k, v, sinks, form);
  const int width = checked_width(k, v, pool.blocks);
  const Fixed given = fixed(inputs, form, pool.blocks);
  return native_op(
      "attention", {q.shape(0), form.heads * width}, mx::float32, std::move(inputs.arrays),
      [pool, rows = std::move(rows), given](const Buffers& buffers) {
        run_attention(call_of(buffers, given, *rows, pool.layer, pool.page_bytes),
                      static_cast<int>(rows->rows.size()));
      },
      v ? kStrided : kStrided & 3u);
}

std::pair<array, array> paged_attention_level(const array& q, const array& k, const std::optional<array>& v,
                                              const PagePool& pool, std::shared_ptr<const AttentionRows> rows,
                                              const AttentionForm& form) {
  auto inputs = inputs_of(q, k, v, std::nullopt, form);
  const int width = checked_width(k, v, pool.blocks);
  const Fixed given = fixed(inputs, form, pool.blocks);
  auto both = native_ops(
      "attention_level", {{q.shape(0), form.heads * width}, {q.shape(0), form.heads}},
      {mx::float32, mx::float32}, inputs.arrays,
      [pool, rows = std::move(rows), given](const Buffers& buffers) {
        AttentionCall call = call_of(buffers, given, *rows, pool.layer, pool.page_bytes);
        call.level = buffers.output<float>(1);
        run_attention(call, static_cast<int>(rows->rows.size()));
      },
      v ? kStrided : kStrided & 3u);
  return {both[0], both[1]};
}

array alone_attention(const array& q, const array& k, const array& v, const std::optional<array>& sinks,
                      const std::vector<int>& offsets, const AttentionForm& form, bool causal) {
  auto inputs = inputs_of(q, k, v, sinks, form);
  const PageBlocks blocks = page_blocks({PageType::f32, PageType::f32}, k.shape(1), k.shape(2), v.shape(2));
  const Fixed given = fixed(inputs, form, blocks);
  auto rows = std::make_shared<AttentionRows>();
  for (size_t r = 0; r + 1 < offsets.size(); ++r) {
    const int count = offsets[r + 1] - offsets[r];
    if (count == 0) continue;
    rows->rows.push_back({offsets[r], count, 0, static_cast<int>(rows->tables.size())});
    for (int t = 0; t < count; t += kAttentionPage)
      rows->tables.push_back(static_cast<int32_t>(rows->tables.size()));
  }
  return native_op(
      "alone_attention", {q.shape(0), form.heads * v.shape(2)}, mx::float32, std::move(inputs.arrays),
      [given, rows = std::move(rows), causal](const Buffers& buffers) {
        const size_t page_bytes = given.blocks.bytes();
        // The pages live as long as the call; what lies behind a row's last token is never used.
        const std::unique_ptr<char[]> pages(new char[rows->tables.size() * page_bytes + kSlack]);
        AttentionCall call = call_of(buffers, given, *rows, pages.get(), page_bytes);
        call.two_way = causal ? 0 : 1;
        run_attention(call, static_cast<int>(rows->rows.size()));
      },
      kStrided);
}

}  // namespace mlxcel::kernels
