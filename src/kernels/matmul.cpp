#include "kernels/matmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/worker_pool.h"
#include "kernels/experts.h"
#include "kernels/packed.h"
#include "kernels/panels.h"

namespace mlxcel::kernels {
namespace {

// A task's activation panel should stay in the second-level cache beside the weights.
constexpr size_t kPanelBytes = size_t{224} << 10;
// Up to so many tiles a block's weights are waited for, if nobody asks for them early.
constexpr size_t kStreamedTiles = 12;
// What a worker asks for before its first product: as much as the products ask for ahead.
constexpr size_t kFirstBytes = 3328;
// What it asks for at most while it waits: a part of its second-level cache.
constexpr size_t kIdleBytes = size_t{32} << 10;
// A task's spread weights should stay in the first-level cache.
constexpr size_t kScratchBytes = size_t{20} << 10;

struct Tile {
  int first, count;
};

/// Tiles [tile0, tile1) of a job against every block of a segment. Its blocks are dealt to `parts` workers in
/// contiguous runs; a task is one block of each stream that goes through a run.
struct Unit {
  const Segment* segment;
  int expert;
  int tile0, tile1;
  int task0;  // number of its first task among all
  bool straight;
  int streams;       // blocks of a task
  int parts, tasks;  // tasks of a part
  int end() const { return task0 + parts * tasks; }
};

/// The blocks of a task, by number.
struct Group {
  int block[kMostStreams];
  int count;
};
Group group_of(const Unit& unit, int task) {
  if (unit.streams == 1) return {{task}, 1};
  const auto [begin, end] = share(unit.segment->blocks, task / unit.tasks, unit.parts);
  const int each = (end - begin + unit.streams - 1) / unit.streams;
  Group group{};
  for (int block = begin + task % unit.tasks; block < end && task % unit.tasks < each; block += each)
    group.block[group.count++] = block;
  return group;
}

/// What a norm does to a row, bit for bit as elementwise.h does it.
void apply(const RowNorm& norm, const RowwiseBodies& bodies, const float* x, int width, float* out) {
  if (norm.layer)
    bodies.layer_norm(x, norm.weight, norm.bias, norm.eps, 1, width, out);
  else
    bodies.rms_norm(x, norm.weight, norm.eps, norm.offset, 1, width, out);
}

std::atomic<uint64_t> plans_made{0};

/// One batch of at most kMostRows rows.
class ProductPlan : public PhaseWork {
 public:
  void set(const Product& product, std::span<const Job> jobs) {
    p_ = product;
    w_ = product.weights;
    bodies_ = w_->bodies;
    number_ = plans_made.fetch_add(1, std::memory_order_relaxed) + 1;
    tiles_.clear();
    units_.clear();
    rows_ = most_rows_ = tasks_ = 0;
    std::fill(std::begin(uses_), std::end(uses_), false);
    std::fill(std::begin(panel_), std::end(panel_), nullptr);
    first_row_ = jobs.front().first;
    const int width = WorkerPool::shared().width();
    for (const Job& job : jobs) most_rows_ = std::max(most_rows_, job.count);
    for (const Segment& segment : w_->segments)
      uses_[panel_of(segment, *w_, p_.precision, most_rows_)] = true;
    for (const Job& job : jobs) {
      const int tile0 = static_cast<int>(tiles_.size());
      const bool direct = job.count <= std::max(bodies_->most_rows, bodies_->most_rows_bytes);
      const int widest = direct ? bodies_->most_direct : bodies_->most_tokens;
      const int count = (job.count + widest - 1) / widest;
      for (int i = 0; i < count; ++i) {
        const auto [begin, end] = share(job.count, i, count);
        tiles_.push_back({job.first - first_row_ + begin, end - begin});
      }
      rows_ += job.count;
      const size_t row_bytes = panel_row_bytes(uses_[kFloatPanel] ? kFloatPanel : kPairPanel, w_->columns);
      const int slab = std::max(
          8, static_cast<int>(kPanelBytes / (row_bytes * static_cast<size_t>(bodies_->most_tokens))));
      for (int t = 0; t < count; t += slab)
        for (const Segment& segment : w_->segments) {
          const PanelKind kind = panel_of(segment, *w_, p_.precision, most_rows_);
          const bool straight =
              kind == kFloatPanel
                  ? segment.dense && job.count == 1
                  : job.count <= (kind == kBytePanel ? bodies_->most_rows_bytes : bodies_->most_rows);
          // Several tiles read a block again while it is near: one block at a time.
          units_.push_back({&segment, job.expert, tile0 + t, tile0 + std::min(count, t + slab), 0, straight,
                            straight && count == 1 ? kMostStreams : 1, 1, segment.blocks});
        }
    }
    for (Unit& unit : units_) {
      unit.task0 = tasks_;
      if (unit.streams > 1) {
        unit.parts = units_.size() == 1 ? width : 1;
        unit.tasks = ((unit.segment->blocks + unit.parts - 1) / unit.parts + unit.streams - 1) / unit.streams;
      }
      tasks_ = unit.end();
    }
    // A token's experts all read the same row.
    const int* const sources = p_.sources ? p_.sources + first_row_ : nullptr;
    one_row_ = sources && rows_ > 1 && most_rows_ == 1 &&
               std::all_of(sources, sources + rows_, [&](int row) { return row == *sources; });
    own_panels_ = own_panel(panel_rows(), w_->columns);
    // Made rows are made once, each by the worker that needs it.
    by_tile_ = p_.made || static_cast<int>(tiles_.size()) >= 4 * width;
    // Some eight pieces a worker: nobody waits long for another's last one.
    grain_ = std::max(1, std::min(32 / std::max(rows_, 4), tasks_ / (8 * width)));
  }

  /// Bytes of shared panel that each kind needs.
  size_t panel_bytes(int kind) const {
    if (!uses_[kind] || own_panels_) return 0;
    return panel_row_bytes(static_cast<PanelKind>(kind), w_->columns) * static_cast<size_t>(panel_rows());
  }
  int tasks() const { return tasks_; }
  /// Parts that a panel is made in, one after another or side by side.
  int panel_units(int kind) const {
    return by_tile_ ? panel_tiles() : columns_units(static_cast<PanelKind>(kind));
  }
  void bind(int kind, uint8_t* panel) { panel_[kind] = panel; }

  void append_to(std::vector<Phase>& phases) {
    const int width = WorkerPool::shared().width();
    for (int kind = 0; kind < kPanelKinds && !own_panels_; ++kind) {
      if (!uses_[kind]) continue;
      // Few tiles are split by column, so that no two workers write the same cache lines; many by tile.
      const int units = panel_units(kind);
      phases.push_back({this, kind, units, std::max(1, units / ((by_tile_ ? 8 : 2) * width))});
    }
    phases.push_back({this, kPanelKinds, tasks_, grain_});
  }

  void run(int part, int /*worker*/, int begin, int end) override {
    if (part < kPanelKinds) {
      const auto kind = static_cast<PanelKind>(part);
      if (by_tile_)
        for (int tile = begin; tile < end; ++tile) prepare(kind, panel_[kind], tile, 0, columns_units(kind));
      else
        for (int tile = 0; tile < panel_tiles(); ++tile) prepare(kind, panel_[kind], tile, begin, end);
      return;
    }
    static thread_local Scratch own[kPanelKinds];
    static thread_local uint64_t own_of = 0;  // whose panels `own` holds
    Panels panels{};
    for (int kind = 0; kind < kPanelKinds; ++kind) {
      panels.at[kind] = panel_[kind];
      if (!uses_[kind] || !own_panels_) continue;
      const auto k = static_cast<PanelKind>(kind);
      panels.at[kind] =
          own[kind].get<uint8_t>(panel_row_bytes(k, w_->columns) * static_cast<size_t>(panel_rows()));
      if (own_of == number_) continue;
      ask(begin, 0);  // meanwhile
      for (int tile = 0; tile < panel_tiles(); ++tile) prepare(k, panels.at[kind], tile, 0, columns_units(k));
    }
    own_of = number_;
    multiply(panels, begin, end);
  }

  /// The blocks that the worker's share begins with, some lines of each stream at a time.
  bool fetch(int, int worker, int width, int step) override {
    const auto [first, last] = share((tasks_ + grain_ - 1) / grain_, worker, width);
    return first != last && ask(first * grain_, step);
  }

 private:
  bool ask(int task, int step) const {
    constexpr size_t kEach = kFirstBytes / kMostStreams;
    const size_t from = static_cast<size_t>(step) * kEach;
    if (from >= kIdleBytes / kMostStreams) return false;
    const Unit& unit = units_[unit_of(task)];
    const Group group = group_of(unit, task - unit.task0);
    const Streams blocks = streams_of(unit, group);
    for (size_t at = from; at < from + kEach; at += 64)
      for (int b = 0; b < blocks.count; ++b) __builtin_prefetch(blocks.at[b] + at);
    return true;
  }

  struct Panels {
    uint8_t* at[kPanelKinds];
  };
  int panel_rows() const { return one_row_ ? 1 : rows_; }
  int panel_tiles() const { return one_row_ ? 1 : static_cast<int>(tiles_.size()); }
  int columns_units(PanelKind kind) const { return kind == kFloatPanel ? w_->columns : w_->columns / kChunk; }

  const float* source(int row) const {
    const int index = first_row_ + row;
    return p_.x + (p_.sources ? p_.sources[index] : index) * (p_.x_stride ? p_.x_stride : w_->columns);
  }

  /// Columns [first, last) (chunks, or single ones of a float panel) of a tile.
  void prepare(PanelKind kind, uint8_t* panel, int tile, int first, int last) const {
    const Tile& t = tiles_[static_cast<size_t>(tile)];
    const float* rows[16];
    if (p_.made) {
      static thread_local Scratch scratch;
      float* room = scratch.get<float>(static_cast<size_t>(t.count) * static_cast<size_t>(w_->columns));
      for (int i = 0; i < t.count; ++i, room += w_->columns)
        rows[i] = p_.made->row(first_row_ + t.first + i, room);
    } else {
      for (int i = 0; i < t.count; ++i) rows[i] = source(t.first + i);
      if (p_.norm) normed(tile, rows);
    }
    uint8_t* const to = panel + static_cast<size_t>(t.first) * panel_row_bytes(kind, w_->columns);
    switch (kind) {
      case kPairPanel:
        // `fast` too: where bytes do not serve, eight bits would cost as much as sixteen.
        bodies_->quantize(rows, t.count, first, last, kLimit16, to);
        break;
      case kPlanePanel:
        bodies_->quantize_planes(rows, t.count, first, last, to);
        break;
      case kBytePanel:
        bodies_->quantize_bytes(rows, t.count, first, last, to);
        break;
      default:
        bodies_->transpose(rows, t.count, first, last, reinterpret_cast<float*>(to));
    }
  }

  /// A tile's rows after the norm, in memory of this worker. Where tiles are split by column each worker
  /// norms all of them once.
  void normed(int tile, const float** rows) const {
    static thread_local Scratch scratch;
    static thread_local uint64_t held_plan = 0;
    static thread_local int held_from = 0, held_to = 0;  // tiles
    const int from = by_tile_ ? tile : 0, to = by_tile_ ? tile + 1 : panel_tiles();
    const auto row_of = [&](int t) { return tiles_[static_cast<size_t>(t)].first; };
    const auto width = static_cast<size_t>(w_->columns);
    const Tile& last = tiles_[static_cast<size_t>(to - 1)];
    float* const out =
        scratch.get<float>(static_cast<size_t>(last.first + last.count - row_of(from)) * width);
    if (held_plan != number_ || held_from != from || held_to != to) {
      for (int row = row_of(from); row < last.first + last.count; ++row)
        apply(*p_.norm, rowwise_bodies(), source(row), w_->columns,
              out + static_cast<size_t>(row - row_of(from)) * width);
      held_plan = number_;
      held_from = from;
      held_to = to;
    }
    const Tile& t = tiles_[static_cast<size_t>(tile)];
    for (int i = 0; i < t.count; ++i) rows[i] = out + static_cast<size_t>(t.first + i - row_of(from)) * width;
  }

  void multiply(const Panels& panels, int begin, int end) const {
    if (begin >= end) return;
    size_t u = unit_of(begin);
    for (int task = begin; task < end; ++u) {
      const Unit& unit = units_[u];
      const int last = std::min(end, unit.end());
      blocks(panels, unit, task - unit.task0, last - unit.task0);
      task = last;
    }
  }
  size_t unit_of(int task) const {
    const auto after = std::upper_bound(units_.begin(), units_.end(), task,
                                        [](int t, const Unit& unit) { return t < unit.task0; });
    return static_cast<size_t>(after - units_.begin()) - 1;
  }

  /// What the blocks of a unit work with, one after another.
  struct Work {
    const Segment& segment;
    Group group;
    Streams from;  // the group's blocks
    PanelKind kind;
    size_t row_bytes, apart;  // of a panel row; from one to the next
    const uint8_t* panel;
    std::span<const Tile> tiles;
    int first;   // first row of the tiles
    float* acc;  // [rows][block_rows]; straight: of a tile, [stream][count][block_rows]
    Finish how;

    const uint8_t* x(const Tile& t) const { return panel + static_cast<size_t>(t.first) * apart; }
    const float* floats(const Tile& t) const { return reinterpret_cast<const float*>(x(t)); }
    float* sums(const Tile& t) const {
      return acc + static_cast<ptrdiff_t>(t.first - first) * segment.block_rows;
    }
  };

  /// Fetches the lines that a tile's results will go to while the tile is computed.
  void fetch_output(const Work& w, const Tile& t) const {
    for (int b = 0; b < w.group.count; ++b) {
      const int column = w.segment.column0 +
                         w.group.block[b] * (w.how.gated ? w.segment.block_rows / 2 : w.segment.block_rows);
      for (int i = 0; i < t.count; ++i) {
        const int row = first_row_ + t.first + i;
        const ptrdiff_t at = (p_.targets ? p_.targets[row] : row) * w.how.stride + column;
        __builtin_prefetch(w.how.out + at, 1);
        if (w.how.residual) __builtin_prefetch(w.how.residual + at, 0);
      }
    }
  }
  void finish(const Work& w, const Tile& t) const {
    bodies_->finish(w.how, w.sums(t), w.segment.block_rows, w.group.block[0], first_row_ + t.first, t.count);
  }

  /// Straight from the packed codes (or one row of dense elements).
  void direct(const Work& w) const {
    for (const Tile& t : w.tiles) {
      fetch_output(w, t);
      if (w.segment.dense)
        bodies_->dense_one(w.segment.kind, w.from, w.floats(t), w_->columns, w.acc);
      else if (w.kind == kPlanePanel)
        bodies_->direct_planes(w.segment.layout, w.from, w.x(t), t.count, w.acc);
      else
        bodies_->direct(w.segment.layout, w.from, w.x(t), t.count, w.kind == kBytePanel, w.acc);
      for (int b = 0; b < w.group.count; ++b)
        bodies_->finish(w.how, w.acc + static_cast<ptrdiff_t>(b) * t.count * w.segment.block_rows,
                        w.segment.block_rows, w.group.block[b], first_row_ + t.first, t.count);
    }
  }

  /// A tile's share of the `count` chunks from `chunk` on, which may lie in the next block: they are asked
  /// for while this tile is computed.
  struct Lines {
    const uint8_t* from = nullptr;
    int count = 0;
  };
  Lines lines_of(const Work& w, int chunk, int count, const Tile& t) const {
    const auto tiles = static_cast<int>(w.tiles.size()), number = static_cast<int>(&t - w.tiles.data());
    const auto all = static_cast<size_t>(w_->columns / kChunk);
    const auto offset = [&](size_t chunks) { return w.segment.block_bytes * chunks / all; };
    const int lines = static_cast<int>(offset(static_cast<size_t>(count)) / 64) + 1;
    const auto [begin, end] = share(lines, number, tiles);
    return {w.from.at[0] + offset(static_cast<size_t>(chunk)) + static_cast<ptrdiff_t>(begin) * 64,
            end - begin};
  }

  /// Codes spread once for all tiles, a stretch of K at a time.
  void spread(const Work& w) const {
    static thread_local Scratch scratch_buffer;
    const CodeLayout& layout = w.segment.layout;
    const int group = layout.group / kChunk, all = w_->columns / kChunk;
    // Stretches of one length: a short last one would wait for memory that nobody asked for.
    const size_t each = w.kind == kBytePanel ? bodies_->spread_size / 2 : bodies_->spread_size;
    const int most = std::max(1, static_cast<int>(kScratchBytes / each) / group);
    const int groups = (all + group - 1) / group, stretches = (groups + most - 1) / most;
    const int step = (groups + stretches - 1) / stretches * group;
    uint8_t* const scratch =
        scratch_buffer.get<uint8_t>(bodies_->spread_size * static_cast<size_t>(std::min(step, all)));
    const size_t chunk_bytes = w.row_bytes / static_cast<size_t>(all);
    for (int chunk = 0; chunk < all; chunk += step) {
      const int n = std::min(step, all - chunk);
      bodies_->spread(layout, w.from.at[0], chunk, chunk + n, w.kind == kBytePanel, scratch);
      for (const Tile& t : w.tiles) {
        const bool last = chunk + n == all;
        const Lines next = w.tiles.size() <= kStreamedTiles ? lines_of(w, chunk + n, n, t) : Lines{};
        if (last) fetch_output(w, t);
        bodies_->tile(
            scratch, w.x(t) + static_cast<size_t>(chunk) * chunk_bytes * static_cast<size_t>(t.count),
            t.count, n, w.kind == kBytePanel, layout.kind == kE4m3, next.from, next.count, w.sums(t));
        if (last) finish(w, t);
      }
    }
  }

  /// f32 products, of dense elements or of codes expanded to f32.
  void floats(const Work& w) const {
    static thread_local Scratch scratch_buffer;
    const Segment& s = w.segment;
    const auto height = static_cast<size_t>(s.block_rows);
    const int step =
        std::max(kChunk, static_cast<int>(kScratchBytes / (height * sizeof(float))) / kChunk * kChunk);
    float* const scratch = scratch_buffer.get<float>(height * static_cast<size_t>(step));
    for (int column = 0; column < w_->columns; column += step) {
      const int n = std::min(step, w_->columns - column);
      const float* from = scratch;
      const uint8_t* const at =
          w.from.at[0] + static_cast<size_t>(column) * height * (s.kind == kF32 ? 4 : 2);
      if (!s.dense)
        bodies_->expand(s.layout, w.from.at[0], column / kChunk, (column + n) / kChunk, scratch);
      else if (s.kind == kF32)
        from = reinterpret_cast<const float*>(at);
      else
        bodies_->widen(s.kind, at, static_cast<size_t>(n) * height, scratch);
      for (const Tile& t : w.tiles) {
        bodies_->dense_tile(from, s.block_rows, w.floats(t) + static_cast<ptrdiff_t>(column) * t.count,
                            t.count, n, w.sums(t));
        if (column + n == w_->columns) finish(w, t);
      }
    }
  }

  /// Tasks [begin, end) of a unit.
  void blocks(const Panels& panels, const Unit& unit, int begin, int end) const {
    static thread_local Scratch acc_buffer;
    const Segment& s = *unit.segment;
    const PanelKind kind = panel_of(s, *w_, p_.precision, most_rows_);
    const std::span<const Tile> tiles(tiles_.data() + unit.tile0,
                                      static_cast<size_t>(unit.tile1 - unit.tile0));
    const int first = tiles.front().first, rows = tiles.back().first + tiles.back().count - first;
    const size_t acc_count =
        static_cast<size_t>(s.block_rows) * static_cast<size_t>(unit.straight ? rows * kMostStreams : rows);
    Work w{.segment = s,
           .group = {},
           .from = {},
           .kind = kind,
           .row_bytes = panel_row_bytes(kind, w_->columns),
           .apart = one_row_ ? 0 : panel_row_bytes(kind, w_->columns),
           .panel = panels.at[kind],
           .tiles = tiles,
           .first = first,
           .acc = acc_buffer.get<float>(acc_count),
           .how = {.out = p_.out,
                   .stride = p_.out_columns,
                   .rows = p_.targets,
                   .bias = p_.bias ? p_.bias + s.column0 : nullptr,
                   .up_bias = p_.up_bias ? p_.up_bias + s.column0 : nullptr,
                   .residual = p_.residual,
                   .columns = s.rows,
                   .column0 = s.column0,
                   .activation = static_cast<int>(p_.activation),
                   .gated = s.gated}};
    for (int task = begin; task < end; ++task) {
      w.group = group_of(unit, task);
      if (w.group.count == 0) continue;
      w.from = streams_of(unit, w.group);
      if (unit.straight) {
        direct(w);
        continue;
      }
      std::memset(w.acc, 0, acc_count * sizeof(float));
      if (kind == kFloatPanel)
        floats(w);
      else
        spread(w);
    }
  }
  static Streams streams_of(const Unit& unit, const Group& group) {
    Streams from{{}, group.count};
    for (int b = 0; b < group.count; ++b) from.at[b] = unit.segment->block(unit.expert, group.block[b]);
    return from;
  }

  Product p_;
  const Matrix::Storage* w_ = nullptr;
  const MatmulBodies* bodies_ = nullptr;
  uint64_t number_ = 0;
  std::vector<Tile> tiles_;
  std::vector<Unit> units_;
  bool uses_[kPanelKinds] = {};
  uint8_t* panel_[kPanelKinds] = {};
  bool own_panels_ = false, by_tile_ = false, one_row_ = false;
  int first_row_ = 0, rows_ = 0, most_rows_ = 0, tasks_ = 0, grain_ = 1;
};

}  // namespace

class Products::Plan final : public ProductPlan {};

Products::Products() = default;
Products::~Products() = default;

void Products::add(const Product& product, std::span<const Job> jobs, std::vector<Phase>& phases) {
  std::vector<Job>& batch = batch_;
  batch.clear();
  int rows = 0;
  const auto flush = [&] {
    if (rows > 0) {
      if (used_ == plans_.size()) plans_.push_back(std::make_unique<Plan>());
      Plan& plan = *plans_[used_++];
      plan.set(product, batch);
      plan.append_to(phases);
    }
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

void Products::bind() {
  static_assert(kPanelKinds == kPanels);
  for (int kind = 0; kind < kPanelKinds; ++kind) {
    size_t most = 0;
    for (size_t i = 0; i < used_; ++i) most = std::max(most, plans_[i]->panel_bytes(kind));
    if (most == 0) continue;
    uint8_t* const panel = panels_[kind].get<uint8_t>(most);
    for (size_t i = 0; i < used_; ++i)
      if (plans_[i]->panel_bytes(kind) > 0) plans_[i]->bind(kind, panel);
  }
}

class LateProduct::Plan final : public ProductPlan {};

LateProduct::LateProduct(std::shared_ptr<const Matrix::Storage> weights, Activation activation, int rows,
                         bool one_source)
    : weights_(std::move(weights)),
      precision_(kernels::precision()),
      activation_(activation),
      rows_(rows),
      pieces_(8 * WorkerPool::shared().width()),
      plan_(std::make_unique<Plan>()) {
  static_assert(kMost <= kMostRows && kPanelKinds == kKinds);
  if (rows < 1 || rows > kMost)
    fail(ErrorKind::internal, "late product: {} rows, expected 1 to {}", rows, kMost);
  const int panel_rows = one_source ? 1 : rows;
  if (own_panel(panel_rows, weights_->columns)) return;
  for (int kind = 0; kind < kPanelKinds; ++kind) {
    // Which kinds there will be depends on the largest job.
    const bool may =
        std::any_of(weights_->segments.begin(), weights_->segments.end(), [&](const Segment& segment) {
          return panel_of(segment, *weights_, precision_, 1) == kind ||
                 panel_of(segment, *weights_, precision_, rows) == kind;
        });
    if (!may) continue;
    const size_t row = panel_row_bytes(static_cast<PanelKind>(kind), weights_->columns);
    panel_at_[kind] = panel_floats_;
    panel_floats_ += (row * static_cast<size_t>(panel_rows) + 63) / 64 * 16;
  }
}
LateProduct::~LateProduct() = default;

int LateProduct::columns() const { return weights_->fused_gate() ? weights_->rows / 2 : weights_->rows; }
long long LateProduct::multiply_adds() const {
  return static_cast<long long>(rows_) * weights_->rows * weights_->columns;
}

void LateProduct::set(const float* x, ptrdiff_t stride, const ExpertDeal& deal,
                      const std::vector<int>& sources, float* out, float* panel) {
  Product p;
  p.weights = weights_.get();
  p.precision = precision_;
  p.x = x;
  p.x_stride = stride;
  p.sources = sources.data();
  p.targets = deal.choices.data();
  p.out = out;
  p.out_columns = columns();
  p.activation = activation_;
  plan_->set(p, deal.jobs);
  for (int kind = 0; kind < kPanelKinds; ++kind)
    if (plan_->panel_bytes(kind) > 0) plan_->bind(kind, reinterpret_cast<uint8_t*>(panel + panel_at_[kind]));
}

void LateProduct::prepare(int piece) {
  for (int kind = 0; kind < kPanelKinds; ++kind) {
    if (plan_->panel_bytes(kind) == 0) continue;
    const auto [begin, end] = share(plan_->panel_units(kind), piece, pieces_);
    if (begin < end) plan_->run(kind, 0, begin, end);
  }
}

void LateProduct::multiply(int piece) {
  const auto [begin, end] = share(plan_->tasks(), piece, pieces_);
  if (begin < end) plan_->run(kPanelKinds, 0, begin, end);
}

void run_product(const Product& product, std::span<const Job> jobs) {
  static thread_local Products products;
  static thread_local std::vector<Phase> phases;
  products.clear();
  phases.clear();
  products.add(product, jobs, phases);
  products.bind();
  run_phases(phases);
}

}  // namespace mlxcel::kernels
