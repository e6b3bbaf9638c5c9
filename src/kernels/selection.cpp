#include "kernels/selection.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/attention_plan.h"
#include "kernels/phases.h"
#include "kernels/primitive.h"
#include "kernels/scratch.h"

namespace mlxcel::kernels {
namespace {

constexpr size_t kPage = kAttentionPage;
// Scores held at a time: queries are taken in runs of about so many floats.
constexpr size_t kHeld = size_t{1} << 22;
constexpr int kPagesOfTask = 16;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Query {
  int row, position, token;
};

/// The scores of some queries against all their keys, then each one's choice.
class Selecting final : public PhaseWork {
 public:
  Selecting(const AttentionCall& call, const float* weights, const SelectionForm& form, int words,
            uint32_t* out)
      : call_(call), bodies_(attention_bodies()), weights_(weights), form_(form), words_(words), out_(out) {}

  void run_all(int rows) {
    std::vector<Query> queries;
    for (int r = 0; r < rows; ++r) {
      const AttentionRow& row = call_.rows[r];
      for (int page = row.position / kAttentionPage; page * kAttentionPage < row.position + row.count; ++page)
        bodies_.append(call_, r, 0, page);
      for (int i = 0; i < row.count; ++i) queries.push_back({r, row.position + i, row.first + i});
    }
    const size_t each = sets() * static_cast<size_t>(words_) * kPage;
    const size_t most = std::max<size_t>(1, kHeld / each);
    for (size_t first = 0; first < queries.size(); first += most) {
      held_.assign(queries.begin() + static_cast<ptrdiff_t>(first),
                   queries.begin() + static_cast<ptrdiff_t>(std::min(queries.size(), first + most)));
      run_held(each);
    }
  }

  void run(int part, int, int begin, int end) override {
    for (int i = begin; i < end; ++i) {
      if (part == kScore)
        score(tasks_[static_cast<size_t>(i)].first, tasks_[static_cast<size_t>(i)].second);
      else
        choose(static_cast<size_t>(i));
    }
  }

 private:
  enum Part { kScore, kChoose };

  size_t sets() const { return form_.by_head ? static_cast<size_t>(form_.heads) : 1; }
  int blocks_of(const Query& query) const {
    return form_.every > 1 ? (query.position + 1) / form_.every : query.position / form_.block + 1;
  }
  int key_of(int block) const { return (block + 1) * form_.every - 1; }  // where blocks are single keys

  void run_held(size_t each) {
    each_ = each;
    thread_local Scratch scratch;
    scores_ = scratch.get<float>(each * held_.size());
    tasks_.clear();
    for (size_t i = 0; i < held_.size(); ++i) {
      if (blocks_of(held_[i]) <= form_.keep) continue;  // sees them all
      for (int page = 0; page <= held_[i].position / kAttentionPage; page += kPagesOfTask)
        tasks_.emplace_back(static_cast<int>(i), page);
    }
    std::vector<Phase> phases;
    if (!tasks_.empty()) phases.push_back({this, kScore, static_cast<int>(tasks_.size()), 1});
    phases.push_back({this, kChoose, static_cast<int>(held_.size()), 1});
    run_phases(phases, tasks_.size() < 2);
  }

  void score(int index, int first) {
    const Query& query = held_[static_cast<size_t>(index)];
    const auto heads = static_cast<size_t>(form_.heads);
    const float* const panel = call_.q + static_cast<ptrdiff_t>(query.token) * call_.q_stride;
    const int last = std::min(first + kPagesOfTask - 1, query.position / kAttentionPage);
    thread_local std::vector<float> products;
    products.resize(heads * kPage);
    for (int page = first; page <= last; ++page) {
      bodies_.products(call_, query.row, 0, page, panel, form_.heads, products.data());
      float* const to = scores_ + static_cast<size_t>(index) * each_ + static_cast<size_t>(page) * kPage;
      if (form_.by_head) {
        for (size_t h = 0; h < heads; ++h)
          for (size_t j = 0; j < kPage; ++j)
            to[h * static_cast<size_t>(words_) * kPage + j] = products[h * kPage + j] * form_.scale;
        continue;
      }
      std::fill(to, to + kPage, 0.0f);
      const float* const weight = weights_ + static_cast<size_t>(query.token) * heads;
      for (size_t h = 0; h < heads; ++h)
        for (size_t j = 0; j < kPage; ++j)
          to[j] += weight[h] * std::max(products[h * kPage + j] * form_.scale, 0.0f);
    }
  }

  void choose(size_t index) {
    const Query& query = held_[index];
    for (size_t set = 0; set < sets(); ++set) {
      uint32_t* const words =
          out_ + (static_cast<size_t>(query.token) * sets() + set) * static_cast<size_t>(words_);
      std::memset(words, 0, static_cast<size_t>(words_) * sizeof(uint32_t));
      const auto mark = [&](int block) {
        if (form_.block == 1) {
          words[key_of(block) / 32] |= 1u << (key_of(block) % 32);
          return;
        }
        const int end = std::min((block + 1) * form_.block, query.position + 1);
        for (int key = block * form_.block; key < end; ++key) words[key / 32] |= 1u << (key % 32);
      };
      const int blocks = blocks_of(query);
      if (blocks <= form_.keep) {
        for (int block = 0; block < blocks; ++block) mark(block);
        continue;
      }
      best_of(query, scores_ + index * each_ + set * static_cast<size_t>(words_) * kPage, mark);
    }
  }

  template <class Mark>
  void best_of(const Query& query, const float* scores, const Mark& mark) const {
    const int blocks = blocks_of(query);
    thread_local std::vector<float> worth, sorted;
    worth.assign(static_cast<size_t>(blocks), kLowest);
    const int keys = form_.block == 1 ? blocks : query.position + 1;
    for (int i = 0; i < keys; ++i) {
      float& best = worth[static_cast<size_t>(i / form_.block)];
      best = std::max(best, scores[form_.block == 1 ? key_of(i) : i]);  // a NaN is never better
    }
    for (int block = std::max(0, blocks - form_.local); block < blocks; ++block)
      worth[static_cast<size_t>(block)] = std::numeric_limits<float>::infinity();
    sorted = worth;
    const auto place = sorted.begin() + (form_.keep - 1);
    std::nth_element(sorted.begin(), place, sorted.end(), std::greater<>());
    const float least = *place;
    int left = form_.keep;
    for (const float x : worth) left -= x > least;
    for (int block = 0; block < blocks; ++block) {
      const float x = worth[static_cast<size_t>(block)];
      if (x > least || (x == least && left-- > 0)) mark(block);
    }
  }

  AttentionCall call_;
  const AttentionBodies& bodies_;
  const float* weights_;
  SelectionForm form_;
  int words_;
  uint32_t* out_;
  size_t each_ = 0;
  float* scores_ = nullptr;
  std::vector<Query> held_;
  std::vector<std::pair<int, int>> tasks_;  // query, first page
};

void check(const array& q, const array& k, const std::optional<array>& weights, const PageBlocks& blocks,
           const SelectionForm& form) {
  const bool fits = q.ndim() == 3 && k.ndim() == 3 && q.shape(1) == form.heads && k.shape(0) == q.shape(0) &&
                    k.shape(1) == 1 && k.shape(2) == q.shape(2) && blocks.kv_heads == 1 &&
                    blocks.key_dim == q.shape(2) && blocks.value_dim == 0 && blocks.latent == 0 &&
                    is_dense(blocks.type);
  if (!fits)
    fail(ErrorKind::internal, "selection: q {} of {} heads, k {}; pages hold {} heads of {} and {}",
         mlxcel::to_string(q.shape()), form.heads, mlxcel::to_string(k.shape()), blocks.kv_heads,
         blocks.key_dim, blocks.value_dim);
  if (form.by_head == weights.has_value() || (weights && weights->shape() != Shape{q.shape(0), form.heads}))
    fail(ErrorKind::internal, "selection: weights [tokens, heads] are for heads that choose together");
  if (form.block < 1 || form.keep < 1 || form.local < 0 || form.local > form.keep || form.every < 1 ||
      (form.every > 1 && (form.block > 1 || form.local > 0)))
    fail(ErrorKind::internal, "selection: {} blocks of {}, {} of them local", form.keep, form.block,
         form.local);
}

}  // namespace

array select_keys(const array& q, const array& k, const std::optional<array>& weights, const PagePool& pool,
                  std::shared_ptr<const AttentionRows> rows, const SelectionForm& form) {
  check(q, k, weights, pool.blocks, form);
  int words = 1;
  for (const AttentionRow& row : rows->rows)
    words = std::max(words, (row.position + row.count + kAttentionPage - 1) / kAttentionPage);
  std::vector<array> inputs{mx::astype(q, mx::float32), mx::astype(k, mx::float32)};
  if (weights) inputs.push_back(mx::astype(*weights, mx::float32));
  const bool weighed = weights.has_value();
  return native_op(
      "select_keys", {q.shape(0), form.by_head ? form.heads : 1, words}, mx::uint32, std::move(inputs),
      [pool, rows = std::move(rows), form, words, weighed](const Buffers& buffers) {
        AttentionCall call{};
        call.q = buffers.input<float>(0);
        call.k = buffers.input<float>(1);
        call.q_stride = buffers.stride[0];
        call.k_stride = buffers.stride[1];
        call.pages = pool.layer;
        call.page_bytes = pool.page_bytes;
        pool.blocks.tell(call);
        call.heads = form.heads;
        call.rows = rows->rows.data();
        call.tables = rows->tables.data();
        Selecting(call, weighed ? buffers.input<float>(2) : nullptr, form, words, buffers.output<uint32_t>())
            .run_all(static_cast<int>(rows->rows.size()));
      });
}

}  // namespace mlxcel::kernels
