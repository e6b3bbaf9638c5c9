#include "kernels/attention.h"

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

/// Checks the shapes of a call; returns its inputs in order.
std::vector<array> inputs_of(const array& q, const array& k, const array& v,
                             const std::optional<array>& sinks, const AttentionForm& form) {
  const auto wrong = [](const char* what, const array& x, const std::string& want) {
    fail(ErrorKind::internal, "attention: {} is {}, expected {}", what, mlxcel::to_string(x.shape()), want);
  };
  if (q.ndim() != 3 || q.shape(1) != form.heads)
    wrong("q", q, fmt::format("[tokens, {}, key_dim]", form.heads));
  if (k.ndim() != 3 || k.shape(0) != q.shape(0) || k.shape(2) != q.shape(2) || k.shape(1) < 1 ||
      form.heads % k.shape(1) != 0)
    wrong("k", k, fmt::format("[{}, a divisor of {}, {}]", q.shape(0), form.heads, q.shape(2)));
  if (v.ndim() != 3 || v.shape(0) != q.shape(0) || v.shape(1) != k.shape(1))
    wrong("v", v, fmt::format("[{}, {}, value_dim]", q.shape(0), k.shape(1)));
  std::vector<array> inputs{mx::astype(q, mx::float32), mx::astype(k, mx::float32),
                            mx::astype(v, mx::float32)};
  if (sinks) {
    if (sinks->shape() != Shape{form.heads}) wrong("sinks", *sinks, fmt::format("[{}]", form.heads));
    inputs.push_back(mx::astype(*sinks, mx::float32));
  }
  return inputs;
}

AttentionCall call_of(const Buffers& buffers, bool sinks, const AttentionRows& rows,
                      const AttentionForm& form, const PageBlocks& blocks, char* pages, size_t page_bytes) {
  AttentionCall call{};
  call.q = buffers.input<float>(0);
  call.k = buffers.input<float>(1);
  call.v = buffers.input<float>(2);
  call.sinks = sinks ? buffers.input<float>(3) : nullptr;
  call.out = buffers.output<float>();
  call.pages = pages;
  call.page_bytes = page_bytes;
  call.head_bytes = blocks.head_bytes;
  call.value_offset = blocks.value_offset;
  call.type = blocks.type;
  call.heads = form.heads;
  call.kv_heads = blocks.kv_heads;
  call.key_dim = blocks.key_dim;
  call.value_dim = blocks.value_dim;
  call.scale = form.scale;
  call.softcap = form.softcap;
  call.window = form.window;
  call.chunk = form.chunk;
  call.q_stride = buffers.stride[0];
  call.k_stride = buffers.stride[1];
  call.v_stride = buffers.stride[2];
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

PageBlocks page_blocks(mx::Dtype dtype, int kv_heads, int key_dim, int value_dim) {
  PageBlocks blocks{page_type(dtype), kv_heads, key_dim, value_dim};
  const size_t item = mx::size_of(dtype);
  blocks.value_offset = up(static_cast<size_t>(key_dim) * kAttentionPage * item, 64);
  blocks.head_bytes = up(blocks.value_offset + static_cast<size_t>(value_dim) * kAttentionPage * item, 64);
  // A row narrower than a vector is read past its end; the slack keeps that inside the block.
  if (value_dim % kAttentionPad != 0) blocks.head_bytes += kSlack;
  return blocks;
}

array paged_attention(const array& q, const array& k, const array& v, const std::optional<array>& sinks,
                      const PagePool& pool, std::shared_ptr<const AttentionRows> rows,
                      const AttentionForm& form) {
  auto inputs = inputs_of(q, k, v, sinks, form);
  const PageBlocks& blocks = pool.blocks;
  if (k.shape(1) != blocks.kv_heads || k.shape(2) != blocks.key_dim || v.shape(2) != blocks.value_dim)
    fail(ErrorKind::internal, "attention: k {} and v {}, pages hold {} heads of {} and {}",
         mlxcel::to_string(k.shape()), mlxcel::to_string(v.shape()), blocks.kv_heads, blocks.key_dim,
         blocks.value_dim);
  const bool with_sinks = sinks.has_value();
  return native_op(
      "attention", {q.shape(0), form.heads * v.shape(2)}, mx::float32, std::move(inputs),
      [pool, rows = std::move(rows), form, with_sinks](const Buffers& buffers) {
        const AttentionCall call =
            call_of(buffers, with_sinks, *rows, form, pool.blocks, pool.layer, pool.page_bytes);
        run_attention(call, static_cast<int>(rows->rows.size()));
      },
      kStrided);
}

array alone_attention(const array& q, const array& k, const array& v, const std::optional<array>& sinks,
                      const std::vector<int>& offsets, const AttentionForm& form, bool causal) {
  auto inputs = inputs_of(q, k, v, sinks, form);
  const bool with_sinks = sinks.has_value();
  const PageBlocks blocks = page_blocks(mx::float32, k.shape(1), k.shape(2), v.shape(2));
  auto rows = std::make_shared<AttentionRows>();
  for (size_t r = 0; r + 1 < offsets.size(); ++r) {
    const int count = offsets[r + 1] - offsets[r];
    if (count == 0) continue;
    rows->rows.push_back({offsets[r], count, 0, static_cast<int>(rows->tables.size())});
    for (int t = 0; t < count; t += kAttentionPage)
      rows->tables.push_back(static_cast<int32_t>(rows->tables.size()));
  }
  return native_op(
      "alone_attention", {q.shape(0), form.heads * v.shape(2)}, mx::float32, std::move(inputs),
      [blocks, rows = std::move(rows), form, with_sinks, causal](const Buffers& buffers) {
        const size_t page_bytes = blocks.bytes();
        // The pages live as long as the call; what lies behind a row's last token is never used.
        const std::unique_ptr<char[]> pages(new char[rows->tables.size() * page_bytes + kSlack]);
        AttentionCall call = call_of(buffers, with_sinks, *rows, form, blocks, pages.get(), page_bytes);
        call.two_way = causal ? 0 : 1;
        run_attention(call, static_cast<int>(rows->rows.size()));
      },
      kStrided);
}

}  // namespace mlxcel::kernels
