#include "kernels/matmul.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>

#include "base/worker_pool.h"
#include "kernels/packed.h"

namespace mlxcel::kernels {
namespace {

// Rows quantised at a time: bounds the panel's memory (1024 rows of 16384 columns are 37 MB).
constexpr int kMostRows = 1024;
// Up to so many tiles it is as fast to unpack the codes again for each as to spread them once.
constexpr size_t kDirectTiles = 3;
// A task's activation panel should stay in the second-level cache beside the weights.
constexpr size_t kPanelBytes = size_t{224} << 10;
// A task's spread weights should stay in the first-level cache.
constexpr size_t kScratchBytes = size_t{20} << 10;

/// Grow-only, 64-byte aligned, one a thread and purpose: run() allocates nothing once warm.
class Buffer {
 public:
  ~Buffer() { std::free(data_); }
  template <class T>
  T* get(size_t count) {
    const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    if (bytes > size_) {
      std::free(data_);
      size_ = 0;
      data_ = std::aligned_alloc(64, bytes);
      if (!data_) throw std::bad_alloc();
      size_ = bytes;
    }
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

struct Tile {
  int first, count;
};

/// Tiles [tile0, tile1) of a job against every block of a segment.
struct Unit {
  const Segment* segment;
  int expert;
  int tile0, tile1;
  int task0;  // number of its first block among all tasks
};

enum PanelKind { kPairPanel, kBytePanel, kPlanePanel, kFloatPanel, kPanelKinds };

size_t panel_row_bytes(PanelKind kind, int columns) {
  const size_t chunks = static_cast<size_t>(columns) / kChunk;
  switch (kind) {
    case kPairPanel:
    case kPlanePanel:
      return chunks * 4 * (kChunk / 2 + 2);
    case kBytePanel:
      return chunks * 4 * (kChunk / 4 + 2);
    default:
      return static_cast<size_t>(columns) * sizeof(float);
  }
}

/// `rows`: the most that a job of the batch has.
PanelKind panel_of(const Segment& segment, const Matrix::Storage& weights, Precision precision, int rows) {
  if (segment.dense || precision == Precision::exact) return kFloatPanel;
  if (precision == Precision::fast)
    return weights.bodies->bytes_serve(segment.layout.width) ? kBytePanel : kPairPanel;
  return segment.layout.width == 4 && rows <= weights.bodies->most_planes ? kPlanePanel : kPairPanel;
}

/// One batch of at most kMostRows rows.
class Batch {
 public:
  Batch(const Product& product, std::span<const Job> jobs)
      : p_(product), w_(*product.weights), bodies_(*w_.bodies) {
    static thread_local std::vector<Tile> tiles;
    static thread_local std::vector<Unit> units;
    static thread_local Buffer panels[kPanelKinds];
    tiles_ = &tiles;
    units_ = &units;
    tiles.clear();
    units.clear();
    first_row_ = jobs.front().first;
    for (const Job& job : jobs) most_rows_ = std::max(most_rows_, job.count);
    for (const Segment& segment : w_.segments) uses_[panel_of(segment, w_, p_.precision, most_rows_)] = true;
    for (const Job& job : jobs) {
      const int tile0 = static_cast<int>(tiles.size());
      const bool direct = job.count <= static_cast<int>(kDirectTiles) * bodies_.most_direct;
      const int widest = direct ? bodies_.most_direct : bodies_.most_tokens;
      const int count = (job.count + widest - 1) / widest;
      for (int i = 0; i < count; ++i) {
        const auto [begin, end] = share(job.count, i, count);
        tiles.push_back({job.first - first_row_ + begin, end - begin});
      }
      rows_ += job.count;
      const size_t row_bytes = panel_row_bytes(uses_[kFloatPanel] ? kFloatPanel : kPairPanel, w_.columns);
      const int slab =
          std::max(8, static_cast<int>(kPanelBytes / (row_bytes * static_cast<size_t>(bodies_.most_tokens))));
      for (int t = 0; t < count; t += slab)
        for (const Segment& segment : w_.segments) {
          units.push_back({&segment, job.expert, tile0 + t, tile0 + std::min(count, t + slab), tasks_});
          tasks_ += segment.blocks;
        }
    }
    for (int kind = 0; kind < kPanelKinds; ++kind)
      if (uses_[kind] && !(rows_ == 1))
        panel_[kind] = panels[kind].get<uint8_t>(panel_row_bytes(static_cast<PanelKind>(kind), w_.columns) *
                                                 static_cast<size_t>(rows_));
  }

  void run() {
    auto& pool = WorkerPool::shared();
    const bool alone = rows_ == 1;
    std::atomic<int> next{0};
    // Few rows read each weight once: a contiguous share a worker keeps one stream. Many rows: who is free.
    const int grain = rows_ <= 4 ? 0 : std::max(1, 32 / rows_);
    pool.run([&](int worker, int width) {
      static thread_local Buffer own[kPanelKinds];
      Panels panels{};
      if (alone) {
        for (int kind = 0; kind < kPanelKinds; ++kind)
          if (uses_[kind]) {
            panels.at[kind] =
                own[kind].get<uint8_t>(panel_row_bytes(static_cast<PanelKind>(kind), w_.columns));
            prepare(static_cast<PanelKind>(kind), panels.at[kind], 0, 0,
                    columns_units(static_cast<PanelKind>(kind)));
          }
      } else {
        for (int kind = 0; kind < kPanelKinds; ++kind) {
          panels.at[kind] = panel_[kind];
          if (uses_[kind]) prepare_share(static_cast<PanelKind>(kind), worker, width);
        }
        pool.barrier();
      }
      if (grain == 0) {
        const auto [begin, end] = share(tasks_, worker, width);
        tasks(panels, begin, end);
        return;
      }
      for (int begin; (begin = next.fetch_add(grain, std::memory_order_relaxed)) < tasks_;)
        tasks(panels, begin, std::min(begin + grain, tasks_));
    });
  }

 private:
  struct Panels {
    uint8_t* at[kPanelKinds];
  };

  int columns_units(PanelKind kind) const { return kind == kFloatPanel ? w_.columns : w_.columns / kChunk; }

  const float* source(int row) const {
    const int index = first_row_ + row;
    return p_.x + static_cast<ptrdiff_t>(p_.sources ? p_.sources[index] : index) * w_.columns;
  }

  /// Columns [first, last) (chunks, or single ones of a float panel) of a tile.
  void prepare(PanelKind kind, uint8_t* panel, int tile, int first, int last) const {
    const Tile& t = (*tiles_)[static_cast<size_t>(tile)];
    const float* rows[16];
    for (int i = 0; i < t.count; ++i) rows[i] = source(t.first + i);
    uint8_t* const to = panel + static_cast<size_t>(t.first) * panel_row_bytes(kind, w_.columns);
    switch (kind) {
      case kPairPanel:
        bodies_.quantize(rows, t.count, first, last, p_.precision == Precision::fast ? 127 : kLimit16, to);
        break;
      case kPlanePanel:
        bodies_.quantize_planes(rows, t.count, first, last, to);
        break;
      case kBytePanel:
        bodies_.quantize_bytes(rows, t.count, first, last, to);
        break;
      default:
        bodies_.transpose(rows, t.count, first, last, reinterpret_cast<float*>(to));
    }
  }

  /// Few tiles are split by column, so that no two workers write the same cache lines; many by tile.
  void prepare_share(PanelKind kind, int worker, int width) const {
    const int count = static_cast<int>(tiles_->size());
    if (count >= 4 * width) {
      const auto [begin, end] = share(count, worker, width);
      for (int tile = begin; tile < end; ++tile) prepare(kind, panel_[kind], tile, 0, columns_units(kind));
    } else {
      const auto [begin, end] = share(columns_units(kind), worker, width);
      for (int tile = 0; tile < count; ++tile) prepare(kind, panel_[kind], tile, begin, end);
    }
  }

  void tasks(const Panels& panels, int begin, int end) const {
    if (begin >= end) return;
    size_t u =
        static_cast<size_t>(std::upper_bound(units_->begin(), units_->end(), begin,
                                             [](int task, const Unit& unit) { return task < unit.task0; }) -
                            units_->begin()) -
        1;
    for (int task = begin; task < end; ++task) {
      while (u + 1 < units_->size() && (*units_)[u + 1].task0 <= task) ++u;
      block(panels, (*units_)[u], task - (*units_)[u].task0);
    }
  }

  void block(const Panels& panels, const Unit& unit, int index) const {
    static thread_local Buffer acc_buffer, scratch_buffer;
    const Segment& s = *unit.segment;
    const uint8_t* const packed = s.block(unit.expert, index);
    const PanelKind kind = panel_of(s, w_, p_.precision, most_rows_);
    const size_t row_bytes = panel_row_bytes(kind, w_.columns);
    const std::span<const Tile> tiles(tiles_->data() + unit.tile0,
                                      static_cast<size_t>(unit.tile1 - unit.tile0));
    const int first = tiles.front().first, rows = tiles.back().first + tiles.back().count - first;
    const uint8_t* const panel = panels.at[kind];
    const size_t height = static_cast<size_t>(s.block_rows);
    float* const acc = acc_buffer.get<float>(height * static_cast<size_t>(rows));
    const auto acc_of = [&](const Tile& t) { return acc + height * static_cast<size_t>(t.first - first); };

    const bool direct = tiles.size() <= kDirectTiles &&
                        std::all_of(tiles.begin(), tiles.end(),
                                    [&](const Tile& t) { return t.count <= bodies_.most_direct; });
    if (kind != kFloatPanel && direct) {
      for (const Tile& t : tiles) {
        const uint8_t* const x = panel + static_cast<size_t>(t.first) * row_bytes;
        if (kind == kPlanePanel)
          bodies_.direct_planes(s.layout, packed, x, t.count, acc_of(t));
        else
          bodies_.direct(s.layout, packed, x, t.count, kind == kBytePanel, acc_of(t));
      }
    } else if (kind == kFloatPanel && s.dense && rows == 1) {
      bodies_.dense_one(s.kind, packed,
                        reinterpret_cast<const float*>(panel + static_cast<size_t>(first) * row_bytes),
                        w_.columns, acc);
    } else {
      std::memset(acc, 0, height * static_cast<size_t>(rows) * sizeof(float));
      if (kind != kFloatPanel) {
        const int group = s.layout.group / kChunk, all = w_.columns / kChunk;
        const int step =
            std::max(group, static_cast<int>(kScratchBytes / bodies_.spread_size) / group * group);
        uint8_t* const scratch =
            scratch_buffer.get<uint8_t>(bodies_.spread_size * static_cast<size_t>(std::min(step, all)));
        for (int chunk = 0; chunk < all; chunk += step) {
          const int n = std::min(step, all - chunk);
          bodies_.spread(s.layout, packed, chunk, chunk + n, kind == kBytePanel, scratch);
          for (const Tile& t : tiles)
            bodies_.tile(scratch,
                         panel + static_cast<size_t>(t.first) * row_bytes +
                             static_cast<size_t>(chunk) * (row_bytes / static_cast<size_t>(all)) *
                                 static_cast<size_t>(t.count),
                         t.count, n, kind == kBytePanel, acc_of(t));
        }
      } else {
        const int step =
            std::max(kChunk, static_cast<int>(kScratchBytes / (height * sizeof(float))) / kChunk * kChunk);
        float* const scratch = scratch_buffer.get<float>(height * static_cast<size_t>(step));
        for (int column = 0; column < w_.columns; column += step) {
          const int n = std::min(step, w_.columns - column);
          const float* from = scratch;
          const size_t element = s.kind == kF32 ? 4 : 2;
          const uint8_t* const at = packed + static_cast<size_t>(column) * height * element;
          if (!s.dense)
            bodies_.expand(s.layout, packed, column / kChunk, (column + n) / kChunk, scratch);
          else if (s.kind == kF32)
            from = reinterpret_cast<const float*>(at);
          else
            bodies_.widen(s.kind, at, static_cast<size_t>(n) * height, scratch);
          for (const Tile& t : tiles)
            bodies_.dense_tile(
                from, s.block_rows,
                reinterpret_cast<const float*>(panel + static_cast<size_t>(t.first) * row_bytes) +
                    static_cast<ptrdiff_t>(column) * t.count,
                t.count, n, acc_of(t));
        }
      }
    }
    const Finish how{.out = p_.out,
                     .stride = p_.out_columns,
                     .rows = p_.targets,
                     .bias = p_.bias ? p_.bias + s.column0 : nullptr,
                     .up_bias = p_.up_bias ? p_.up_bias + s.column0 : nullptr,
                     .residual = p_.residual,
                     .columns = s.rows,
                     .column0 = s.column0,
                     .activation = s.gated ? static_cast<int>(p_.activation) : 0,
                     .gated = s.gated};
    bodies_.finish(how, acc, s.block_rows, index, first_row_ + first, rows);
  }

  const Product& p_;
  const Matrix::Storage& w_;
  const MatmulBodies& bodies_;
  std::vector<Tile>* tiles_ = nullptr;
  std::vector<Unit>* units_ = nullptr;
  bool uses_[kPanelKinds] = {};
  uint8_t* panel_[kPanelKinds] = {};
  int first_row_ = 0, rows_ = 0, most_rows_ = 0, tasks_ = 0;
};

}  // namespace

void run_product(const Product& product, const std::vector<Job>& jobs) {
  static thread_local std::vector<Job> batch;
  batch.clear();
  int rows = 0;
  const auto flush = [&] {
    if (rows > 0) Batch(product, batch).run();
    batch.clear();
    rows = 0;
  };
  for (Job job : jobs)
    while (job.count > 0) {
      const int n = std::min(job.count, kMostRows - rows);
      batch.push_back({job.expert, job.first, n});
      job.first += n;
      job.count -= n;
      if ((rows += n) == kMostRows) flush();
    }
  flush();
}

}  // namespace mlxcel::kernels
