#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/worker_pool.h"
#include "kernels/isa/dispatch.h"
#include "kernels/primitive.h"

namespace mlxcel::kernels {
namespace {

// Queries (times heads per kv head) that share a widened page: their panel and sums stay in L2.
constexpr int kTileQueries = 96;
// Bodies read whole vectors: up to 15 f32 past the values of the last token.
constexpr size_t kSlack = 64;
// Below this many multiply-adds a second worker costs more than it brings.
constexpr long long kParallel = 32768;
constexpr size_t kAlign = 16;  // floats: a cache line

size_t up(size_t value, size_t step) { return (value + step - 1) / step * step; }

const AttentionBodies& bodies() {
  switch (isa()) {
    case Isa::generic: return kAttentionGeneric;
    case Isa::avx2: return kAttentionAvx2;
    case Isa::avx512: return kAttentionAvx512;
  }
  return kAttentionGeneric;
}

/// One tile and the segments it meets.
struct Unit {
  AttentionTile tile;
  int first, last;   // segments
  size_t part = 0;   // where its parts begin in the buffer of parts, when segments run apart
};
struct Append {
  int row, page;
};

/// The work of one call, cut into tasks that workers take one by one.
class Job {
 public:
  Job(const AttentionCall& call, int rows) : call_(call), bodies_(bodies()), width_(WorkerPool::shared().width()) {
    group_ = call.heads / call.kv_heads;
    padded_ = static_cast<int>(up(static_cast<size_t>(call.value_dim), kAttentionPad));
    plan(rows);
  }

  void run() {
    auto& pool = WorkerPool::shared();
    // One buffer for all workers, kept by the stream's thread: a worker never allocates, so never throws.
    thread_local std::vector<float> scratch;
    const size_t need = parts_ + static_cast<size_t>(width_) * worker_floats_ + kAlign;
    if (scratch.size() < need) scratch.resize(need);
    void* start = scratch.data();
    size_t room = scratch.size() * sizeof(float);
    auto* const base = static_cast<float*>(std::align(kAlign * sizeof(float), 1, start, room));
    const auto body = [&](int worker, int) {
      float* const own = base + parts_ + static_cast<size_t>(worker) * worker_floats_;
      append();
      pool.barrier();
      if (tasks_.empty()) {
        whole_units(own);
      } else {
        single_segments(base, own);
        pool.barrier();
        merge_units(base);
      }
    };
    if (products_ < kParallel)
      body(0, 1);  // barriers outside a region are empty
    else
      pool.run(body);
  }

 private:
  size_t state_floats(const AttentionTile& tile) const {
    return up(static_cast<size_t>(tile.count) * static_cast<size_t>(group_) * static_cast<size_t>(padded_ + 2), kAlign);
  }

  size_t panel_floats(const AttentionTile& tile) const {
    return up(static_cast<size_t>(tile.count) * static_cast<size_t>(group_) * static_cast<size_t>(call_.key_dim), kAlign);
  }

  int oldest_of(int position) const {
    if (call_.chunk > 0) return position - position % call_.chunk;
    return call_.window > 0 ? std::max(0, position - call_.window + 1) : 0;
  }

  void plan(int rows) {
    const int queries = std::max(1, kTileQueries / group_);
    int most = 0, longest = 0;
    long long total = 0, keys = 0;
    for (int r = 0; r < rows; ++r) {
      const AttentionRow& row = call_.rows[r];
      const int end = row.position + row.count;
      for (int page = row.position / kAttentionPage; page * kAttentionPage < end; ++page) appends_.push_back({r, page});
      // The last queries meet the most keys, so their tiles go first.
      for (int first = (row.count - 1) / queries * queries; first >= 0; first -= queries) {
        const int count = std::min(queries, row.count - first);
        const int last = call_.two_way ? end - 1 : row.position + first + count - 1;
        const int oldest = call_.two_way ? 0 : oldest_of(row.position + first);
        keys += static_cast<long long>(last - oldest + 1) * count;
        for (int head = 0; head < call_.kv_heads; ++head) {
          units_.push_back({{r, head, first, count}, oldest / kAttentionSegment, last / kAttentionSegment});
          const int work = (units_.back().last - units_.back().first + 1) * count;
          longest = std::max(longest, work);
          total += work;
        }
        most = std::max(most, count);
      }
    }
    const AttentionTile largest{0, 0, 0, most};
    const auto page_floats = static_cast<size_t>(call_.key_dim + padded_) * kAttentionPage;
    worker_floats_ = up(panel_floats(largest) + 2 * state_floats(largest) + page_floats, kAlign);
    products_ = keys * call_.heads * (call_.key_dim + call_.value_dim);
    // Few or uneven units: segments become tasks of their own. Only the schedule changes, never the result.
    if (width_ > 1 && static_cast<long long>(longest) * width_ * 2 > total) split();
  }

  void split() {
    for (size_t u = 0; u < units_.size(); ++u) {
      Unit& unit = units_[u];
      unit.part = parts_;
      for (int s = unit.first; s <= unit.last; ++s) {
        tasks_.push_back({static_cast<int>(u), s});
        parts_ += state_floats(unit.tile);
      }
    }
    if (tasks_.size() == units_.size()) {  // nothing to cut
      tasks_.clear();
      parts_ = 0;
    }
  }

  void append() {
    const int count = static_cast<int>(appends_.size()) * call_.kv_heads;
    for (int i; (i = next_append_.fetch_add(1, std::memory_order_relaxed)) < count;) {
      const Append& task = appends_[static_cast<size_t>(i / call_.kv_heads)];
      bodies_.append(call_, task.row, i % call_.kv_heads, task.page);
    }
  }

  void whole_units(float* own) {
    for (size_t i; (i = next_unit_.fetch_add(1, std::memory_order_relaxed)) < units_.size();) {
      const Unit& unit = units_[i];
      float* const panel = own;
      float* const total = panel + panel_floats(unit.tile);
      float* const part = total + state_floats(unit.tile);
      float* const work = part + state_floats(unit.tile);
      bodies_.load_queries(call_, unit.tile, panel);
      bodies_.segment(call_, unit.tile, unit.first, panel, total, work);
      for (int s = unit.first + 1; s <= unit.last; ++s) {
        bodies_.segment(call_, unit.tile, s, panel, part, work);
        bodies_.merge(total, part, unit.tile.count * group_, padded_);
      }
      bodies_.finish(call_, unit.tile, total);
    }
  }

  void single_segments(float* parts, float* own) {
    for (size_t i; (i = next_unit_.fetch_add(1, std::memory_order_relaxed)) < tasks_.size();) {
      const auto [u, s] = tasks_[i];
      const Unit& unit = units_[static_cast<size_t>(u)];
      float* const work = own + panel_floats(unit.tile);
      bodies_.load_queries(call_, unit.tile, own);
      bodies_.segment(call_, unit.tile, s, own,
                      parts + unit.part + static_cast<size_t>(s - unit.first) * state_floats(unit.tile), work);
    }
  }

  void merge_units(float* parts) {
    for (size_t i; (i = next_merge_.fetch_add(1, std::memory_order_relaxed)) < units_.size();) {
      const Unit& unit = units_[i];
      float* const total = parts + unit.part;
      for (int s = unit.first + 1; s <= unit.last; ++s)
        bodies_.merge(total, total + static_cast<size_t>(s - unit.first) * state_floats(unit.tile),
                      unit.tile.count * group_, padded_);
      bodies_.finish(call_, unit.tile, total);
    }
  }

  const AttentionCall& call_;
  const AttentionBodies& bodies_;
  const int width_;
  int group_ = 1, padded_ = 0;
  size_t worker_floats_ = 0, parts_ = 0;
  long long products_ = 0;
  std::vector<Append> appends_;
  std::vector<Unit> units_;
  std::vector<std::pair<int, int>> tasks_;  // unit, segment; empty: whole units
  std::atomic<int> next_append_{0};
  std::atomic<size_t> next_unit_{0}, next_merge_{0};
};

/// Checks the shapes of a call; returns its inputs in order.
std::vector<array> inputs_of(const array& q, const array& k, const array& v, const std::optional<array>& sinks,
                             const AttentionForm& form) {
  const auto wrong = [](const char* what, const array& x, const std::string& want) {
    fail(ErrorKind::internal, "attention: {} is {}, expected {}", what, mlxcel::to_string(x.shape()), want);
  };
  if (q.ndim() != 3 || q.shape(1) != form.heads) wrong("q", q, fmt::format("[tokens, {}, key_dim]", form.heads));
  if (k.ndim() != 3 || k.shape(0) != q.shape(0) || k.shape(2) != q.shape(2) || k.shape(1) < 1 ||
      form.heads % k.shape(1) != 0)
    wrong("k", k, fmt::format("[{}, a divisor of {}, {}]", q.shape(0), form.heads, q.shape(2)));
  if (v.ndim() != 3 || v.shape(0) != q.shape(0) || v.shape(1) != k.shape(1))
    wrong("v", v, fmt::format("[{}, {}, value_dim]", q.shape(0), k.shape(1)));
  std::vector<array> inputs{mx::astype(q, mx::float32), mx::astype(k, mx::float32), mx::astype(v, mx::float32)};
  if (sinks) {
    if (sinks->shape() != Shape{form.heads}) wrong("sinks", *sinks, fmt::format("[{}]", form.heads));
    inputs.push_back(mx::astype(*sinks, mx::float32));
  }
  return inputs;
}

AttentionCall call_of(const Buffers& buffers, bool sinks, const AttentionRows& rows, const AttentionForm& form,
                      const PageBlocks& blocks, char* pages, size_t page_bytes) {
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
  call.rows = rows.rows.data();
  call.tables = rows.tables.data();
  return call;
}

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
                      const PagePool& pool, std::shared_ptr<const AttentionRows> rows, const AttentionForm& form) {
  auto inputs = inputs_of(q, k, v, sinks, form);
  const PageBlocks& blocks = pool.blocks;
  if (k.shape(1) != blocks.kv_heads || k.shape(2) != blocks.key_dim || v.shape(2) != blocks.value_dim)
    fail(ErrorKind::internal, "attention: k {} and v {}, pages hold {} heads of {} and {}", mlxcel::to_string(k.shape()),
         mlxcel::to_string(v.shape()), blocks.kv_heads, blocks.key_dim, blocks.value_dim);
  const bool with_sinks = sinks.has_value();
  return native_op("attention", {q.shape(0), form.heads * v.shape(2)}, mx::float32, std::move(inputs),
                   [pool, rows = std::move(rows), form, with_sinks](const Buffers& buffers) {
                     const AttentionCall call =
                         call_of(buffers, with_sinks, *rows, form, pool.blocks, pool.layer, pool.page_bytes);
                     Job(call, static_cast<int>(rows->rows.size())).run();
                   });
}

array two_way_attention(const array& q, const array& k, const array& v, const std::optional<array>& sinks,
                        const std::vector<int>& offsets, const AttentionForm& form) {
  auto inputs = inputs_of(q, k, v, sinks, form);
  const bool with_sinks = sinks.has_value();
  const PageBlocks blocks = page_blocks(mx::float32, k.shape(1), k.shape(2), v.shape(2));
  auto rows = std::make_shared<AttentionRows>();
  for (size_t r = 0; r + 1 < offsets.size(); ++r) {
    const int count = offsets[r + 1] - offsets[r];
    if (count == 0) continue;
    rows->rows.push_back({offsets[r], count, 0, static_cast<int>(rows->tables.size())});
    for (int t = 0; t < count; t += kAttentionPage) rows->tables.push_back(static_cast<int32_t>(rows->tables.size()));
  }
  return native_op("two_way_attention", {q.shape(0), form.heads * v.shape(2)}, mx::float32, std::move(inputs),
                   [blocks, rows = std::move(rows), form, with_sinks](const Buffers& buffers) {
                     const size_t page_bytes = blocks.bytes();
                     // The pages live as long as the call; what lies behind a row's last token is never used.
                     const std::unique_ptr<char[]> pages(new char[rows->tables.size() * page_bytes + kSlack]);
                     AttentionCall call = call_of(buffers, with_sinks, *rows, form, blocks, pages.get(), page_bytes);
                     call.two_way = 1;
                     Job(call, static_cast<int>(rows->rows.size())).run();
                   });
}

}  // namespace mlxcel::kernels
