#include "kernels/attention_plan.h"

#include <algorithm>
#include <utility>

#include "base/worker_pool.h"
#include "kernels/isa/dispatch.h"
#include "kernels/isa/neon.h"

namespace mlxcel::kernels {
namespace {

// Queries (times heads per kv head) that share a widened page: their panel and sums stay in L2.
constexpr int kTileQueries = 96;
// Below this many multiply-adds a second worker costs more than it brings.
constexpr long long kParallel = 32768;
constexpr size_t kAlign = 16;  // floats: a cache line

size_t up(size_t value, size_t step) { return (value + step - 1) / step * step; }

/// One tile and the segments it meets.
struct Unit {
  AttentionTile tile;
  int first, last;  // segments
  size_t part = 0;  // where its parts begin in the buffer of parts, when segments run apart
};
struct Append {
  int row, page;
};

}  // namespace

class Attentions::Plan final : public PhaseWork {
 public:
  void set(const AttentionCall& call, int rows, const HeadTurn* turn) {
    call_ = call;
    bodies_ = &attention_bodies();
    turning_ = turn != nullptr;
    if (turn) turn_ = *turn;
    width_ = WorkerPool::shared().width();
    group_ = call.heads / call.kv_heads;
    padded_ = static_cast<int>(up(static_cast<size_t>(call.value_dim), kAttentionPad));
    appends_.clear();
    units_.clear();
    tasks_.clear();
    worker_floats_ = parts_ = 0;
    products_ = 0;
    plan(rows);
  }

  size_t floats() const { return parts_ + static_cast<size_t>(width_) * worker_floats_; }
  void bind(float* base) { base_ = base; }
  long long products() const { return products_; }

  void append_to(std::vector<Phase>& phases) {
    if (!folded_) {
      const auto pages = static_cast<int>(appends_.size());
      phases.push_back({this, kAppend, turning_ ? pages : pages * call_.kv_heads, 1});
    }
    if (tasks_.empty()) {
      phases.push_back({this, kWhole, static_cast<int>(units_.size()), 1});
    } else {
      phases.push_back({this, kSegment, static_cast<int>(tasks_.size()), 1});
      phases.push_back({this, kMerge, static_cast<int>(units_.size()), 1});
    }
  }

  void run(int part, int worker, int begin, int end) override {
    float* const own = base_ + parts_ + static_cast<size_t>(worker) * worker_floats_;
    for (int i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      switch (part) {
        case kAppend:
          append(i);
          break;
        case kWhole:
          whole(units_[at], own);
          break;
        case kSegment:
          segment(tasks_[at].first, tasks_[at].second, own);
          break;
        default:
          merge(units_[at]);
      }
    }
  }

 private:
  enum Part { kAppend, kWhole, kSegment, kMerge };

  size_t state_floats(const AttentionTile& tile) const {
    return up(
        static_cast<size_t>(tile.count) * static_cast<size_t>(group_) * static_cast<size_t>(padded_ + 2),
        kAlign);
  }

  size_t panel_floats(const AttentionTile& tile) const {
    return up(
        static_cast<size_t>(tile.count) * static_cast<size_t>(group_) * static_cast<size_t>(call_.key_dim),
        kAlign);
  }

  int oldest_of(const AttentionRow& row, int position) const {
    position = std::min(position, row.position + row.count - row.open);
    if (call_.chunk > 0) return position - position % call_.chunk;
    return call_.window > 0 ? std::max(0, position - call_.window + 1) : 0;
  }

  /// The last key that a query at `position` sees.
  int last_of(const AttentionRow& row, int position) const {
    if (position >= row.position + row.count - row.open) return row.position + row.count - 1;
    if (call_.block == 0) return position;
    return std::min(position - position % call_.block + call_.block, row.position + row.count) - 1;
  }

  void plan(int rows) {
    const int queries = std::max(1, kTileQueries / group_);
    int most = 0, longest = 0;
    long long total = 0, keys = 0;
    bool one_tile_a_row = true;
    for (int r = 0; r < rows; ++r) {
      const AttentionRow& row = call_.rows[r];
      const int end = row.position + row.count;
      for (int page = row.position / kAttentionPage; page * kAttentionPage < end; ++page)
        appends_.push_back({r, page});
      one_tile_a_row = one_tile_a_row && row.count <= queries;
      // The last queries meet the most keys, so their tiles go first.
      for (int first = (row.count - 1) / queries * queries; first >= 0; first -= queries) {
        const int count = std::min(queries, row.count - first);
        const int last = call_.two_way ? end - 1 : last_of(row, row.position + first + count - 1);
        const int oldest = call_.two_way ? 0 : oldest_of(row, row.position + first);
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
    folded_ = one_tile_a_row && tasks_.empty();
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

  void turn_heads(float* x, int heads, const RowNorm* norm, const float* angles) const {
    const auto& body = rowwise_bodies();
    if (norm) body.rms_norm(x, norm->weight, norm->eps, norm->offset, heads, call_.key_dim, x);
    if (angles)
      body.rope(x, angles, angles + turn_.half, heads, call_.key_dim, turn_.half, turn_.interleaved, x);
  }

  /// kv heads [from, to) and their query heads, of the step's tokens [first, last).
  void turn(int first, int last, int from, int to) const {
    for (int t = first; t < last; ++t) {
      const float* const angles =
          turn_.angles ? turn_.angles + static_cast<ptrdiff_t>(t) * 2 * turn_.half : nullptr;
      float* const q = const_cast<float*>(call_.q) + t * call_.q_stride;
      float* const k = const_cast<float*>(call_.k) + t * call_.k_stride;
      turn_heads(q + from * group_ * call_.key_dim, (to - from) * group_, turn_.q_norm, angles);
      if (turn_.factors) {
        float* const queries = q + from * group_ * call_.key_dim;
        const int count = (to - from) * group_ * call_.key_dim;
        for (int i = 0; i < count; ++i) queries[i] *= turn_.factors[t];
      }
      turn_heads(k + from * call_.key_dim, to - from, turn_.k_norm, angles);
    }
  }

  void append(int task) const {
    if (!turning_) {
      const Append& a = appends_[static_cast<size_t>(task / call_.kv_heads)];
      return bodies_->append(call_, a.row, task % call_.kv_heads, a.page);
    }
    const Append& a = appends_[static_cast<size_t>(task)];
    const AttentionRow& row = call_.rows[a.row];
    const int from = std::max(row.position, a.page * kAttentionPage) - row.position;
    const int to = std::min(row.position + row.count, (a.page + 1) * kAttentionPage) - row.position;
    turn(row.first + from, row.first + to, 0, call_.kv_heads);
    for (int head = 0; head < call_.kv_heads; ++head) bodies_->append(call_, a.row, head, a.page);
  }

  /// Where a unit is all of its row's work for one kv head, what comes before it as well.
  void prepare(const AttentionTile& tile) const {
    const AttentionRow& row = call_.rows[tile.row];
    if (turning_) turn(row.first, row.first + row.count, tile.kv_head, tile.kv_head + 1);
    for (int page = row.position / kAttentionPage; page * kAttentionPage < row.position + row.count; ++page)
      bodies_->append(call_, tile.row, tile.kv_head, page);
  }

  void whole(const Unit& unit, float* own) const {
    if (folded_) prepare(unit.tile);
    float* const panel = own;
    float* const total = panel + panel_floats(unit.tile);
    float* const part = total + state_floats(unit.tile);
    float* const work = part + state_floats(unit.tile);
    bodies_->load_queries(call_, unit.tile, panel);
    bodies_->segment(call_, unit.tile, unit.first, panel, total, work);
    for (int s = unit.first + 1; s <= unit.last; ++s) {
      bodies_->segment(call_, unit.tile, s, panel, part, work);
      bodies_->merge(total, part, unit.tile.count * group_, padded_);
    }
    bodies_->finish(call_, unit.tile, total);
  }

  void segment(int u, int s, float* own) const {
    const Unit& unit = units_[static_cast<size_t>(u)];
    float* const work = own + panel_floats(unit.tile);
    bodies_->load_queries(call_, unit.tile, own);
    bodies_->segment(call_, unit.tile, s, own,
                     base_ + unit.part + static_cast<size_t>(s - unit.first) * state_floats(unit.tile), work);
  }

  void merge(const Unit& unit) const {
    float* const total = base_ + unit.part;
    for (int s = unit.first + 1; s <= unit.last; ++s)
      bodies_->merge(total, total + static_cast<size_t>(s - unit.first) * state_floats(unit.tile),
                     unit.tile.count * group_, padded_);
    bodies_->finish(call_, unit.tile, total);
  }

  AttentionCall call_{};
  HeadTurn turn_;
  bool turning_ = false;
  bool folded_ = false;  // each unit appends what it needs itself
  const AttentionBodies* bodies_ = nullptr;
  int width_ = 1, group_ = 1, padded_ = 0;
  float* base_ = nullptr;
  size_t worker_floats_ = 0, parts_ = 0;
  long long products_ = 0;
  std::vector<Append> appends_;
  std::vector<Unit> units_;
  std::vector<std::pair<int, int>> tasks_;  // unit, segment; empty: whole units
};

const AttentionBodies& attention_bodies() {
  switch (isa()) {
    case Isa::generic:
      return kAttentionGeneric;
    case Isa::avx2:
      return kAttentionAvx2;
    case Isa::avx512:
      return kAttentionAvx512;
    case Isa::neon:
    case Isa::i8mm:
      return kAttentionNeon;
  }
  return kAttentionGeneric;
}

Attentions::Attentions() = default;
Attentions::~Attentions() = default;

void Attentions::add(const AttentionCall& call, int rows, const HeadTurn* turn, std::vector<Phase>& phases) {
  if (used_ == plans_.size()) plans_.push_back(std::make_unique<Plan>());
  Plan& plan = *plans_[used_++];
  plan.set(call, rows, turn);
  plan.append_to(phases);
}

void Attentions::bind() {
  size_t most = 0;
  for (size_t i = 0; i < used_; ++i) most = std::max(most, plans_[i]->floats());
  float* const base = scratch_.get<float>(most);
  for (size_t i = 0; i < used_; ++i) plans_[i]->bind(base);
}

long long Attentions::products() const { return used_ ? plans_[used_ - 1]->products() : 0; }

void run_attention(const AttentionCall& call, int rows) {
  static thread_local Attentions attentions;
  static thread_local std::vector<Phase> phases;
  attentions.clear();
  phases.clear();
  attentions.add(call, rows, nullptr, phases);
  attentions.bind();
  run_phases(phases, attentions.products() < kParallel);
}

}  // namespace mlxcel::kernels
