#include "nn/pooled.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/elementwise.h"
#include "nn/fault.h"
#include "state/join.h"

namespace mlxcel {

namespace {

array columns(const array& x, int from, int to) {
  Shape start(x.ndim(), 0), stop = x.shape();
  start.back() = from;
  stop.back() = to;
  return mx::slice(x, start, stop);
}

array indices(const std::vector<int32_t>& values) {
  return array(values.data(), {static_cast<int>(values.size())}, mx::int32);
}

/// The last entries of each head rotated, as long as they were: [n, heads, head_dim].
array turn_tail(const array& x, const array& positions, const Rope& rope, bool back = false) {
  const int rotated = 2 * static_cast<int>(rope.frequencies().size()), dim = x.shape(2);
  if (fault("tail not rotated")) return x;
  const array table = back ? mx::negative(rope.table()) : rope.table();
  const array tail =
      kernels::rope(columns(x, dim - rotated, dim), positions, table, rope.interleaved(), 1.0f);
  return rotated == dim ? tail : mx::concatenate({columns(x, 0, dim - rotated), tail}, 2);
}

KvSpec one_key(int width, int window) {
  return {.kv_heads = 1, .key_dim = width, .value_dim = 0, .window = window, .latent = width};
}

array ids_below(int count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return array(ids.data(), {1, count}, mx::int32);
}

}  // namespace

Pool::Pool(const Weights& w, const KeyPoolOptions& options)
    : o_(options),
      in_(w.fused({"kv_proj", "gate_proj"}, {channels(), channels()}, o_.hidden, Bias::none)),
      bias_(w.tensor("position_bias", {o_.run, channels()})),
      norm_(w.rms_norm("kv_norm", o_.width, o_.eps)),
      slot_(w.layout().add_recurrent({.name = "open run", .shape = {history(), 2 * channels()}})) {}

array Pool::operator()(const array& x, Step& step) const {
  const int kept = history(), width = 2 * channels(), rows = static_cast<int>(step.rows().size());
  const array before = mx::reshape(step.recurrent(slot_), {rows * kept, width});
  const array all = mx::concatenate({before, in_(x)}, 0);
  // Where a row's token stands in `all`; those before the step count down from -1.
  const auto place = [&](int row, int token) {
    const StepRow& r = step.rows()[static_cast<size_t>(row)];
    return token >= 0 ? rows * kept + r.first + token : row * kept + kept + token;
  };
  std::vector<int32_t> next, sources, starts, answer(static_cast<size_t>(step.count()), 0);
  for (int row = 0; row < rows; ++row) {
    const StepRow& r = step.rows()[static_cast<size_t>(row)];
    for (int token = r.count - kept; token < r.count; ++token) next.push_back(place(row, token));
    for (int token = 0; token < r.count; ++token) {
      if ((r.position + token + 1) % o_.run != 0) continue;
      const int first = token + 1 - o_.run;
      for (int i = o_.overlap ? first - o_.run : first; i <= token; ++i) sources.push_back(place(row, i));
      starts.push_back(r.position + first);
      answer[static_cast<size_t>(r.first + token)] = static_cast<int32_t>(starts.size());
    }
  }
  step.set_recurrent(slot_, mx::reshape(mx::take(all, indices(next), 0), {rows, kept, width}));
  const array nothing = mx::zeros({1, o_.width}, mx::float32);
  const array entries =
      starts.empty() ? nothing : mx::concatenate({nothing, pooled(all, sources, starts)}, 0);
  return mx::reshape(mx::take(entries, indices(answer), 0), {step.count(), 1, o_.width});
}

/// The entries of runs whose tokens stand at `sources` of `all`, [runs, width].
array Pool::pooled(const array& all, const std::vector<int32_t>& sources,
                   const std::vector<int32_t>& starts) const {
  const int runs = static_cast<int>(starts.size()), each = static_cast<int>(sources.size()) / runs;
  const array tokens = mx::reshape(mx::take(all, indices(sources), 0), {runs, each, 2 * channels()});
  // Of the channels from `channel` on, of the tokens from `from` on.
  const auto of = [&](int from, int channel, bool gates) {
    const int at = channel + (gates ? channels() : 0);
    const array y = mx::slice(tokens, {0, from, at}, {runs, from + o_.run, at + o_.width});
    return gates ? mx::add(y, columns(bias_, channel, channel + o_.width)) : y;
  };
  array values = of(each - o_.run, channels() - o_.width, false);
  array gates = of(each - o_.run, channels() - o_.width, true);
  if (o_.overlap && !fault("run before left out")) {
    std::vector<float> open;  // nothing is before a row's first run
    for (const int start : starts) open.push_back(start > 0 ? 0.0f : -std::numeric_limits<float>::infinity());
    const array earlier = mx::add(of(0, 0, true), array(open.data(), {runs, 1, 1}, mx::float32));
    values = mx::concatenate({of(0, 0, false), values}, 1);
    gates = mx::concatenate({earlier, gates}, 1);
  }
  // Sums over a run go along the last axis: a run's bits then do not depend on its neighbours.
  const array shares =
      mx::softmax(mx::contiguous(mx::swapaxes(gates, 1, 2)), std::vector<int>{-1}, /*precise=*/true);
  const array weighed = mx::contiguous(mx::multiply(mx::swapaxes(values, 1, 2), shares));
  const array entries = norm_(mx::sum(weighed, -1));
  const array at = indices(starts);
  return mx::reshape(turn_tail(mx::expand_dims(entries, 1), at, o_.rope), {runs, o_.width});
}

PooledAttention::PooledAttention(const Weights& w, const PooledOptions& options)
    : o_(options),
      down_(w.fused({"q_a_proj", "kv_proj"}, {o_.q_rank, o_.head_dim}, o_.hidden, Bias::none)),
      q_(w.linear("q_b_proj", o_.heads * o_.head_dim, o_.q_rank, Bias::none)),
      out_a_(w.bank("o_groups", o_.groups, o_.rank, o_.heads / o_.groups * o_.head_dim)),
      out_b_(w.linear("o_b_proj", o_.hidden, o_.groups * o_.rank, Bias::none)),
      q_norm_(w.rms_norm("q_a_norm", o_.q_rank, o_.eps)),
      kv_norm_(w.rms_norm("kv_norm", o_.head_dim, o_.eps)),
      sinks_(w.tensor("sinks", {o_.heads})),
      group_ids_(ids_below(o_.groups)),
      slot_(w.layout().add_kv(one_key(o_.head_dim, fault("window ignored") ? 0 : o_.window))) {
  if (o_.run == 0) return;
  const Weights at = w / "compressor";
  KeyPoolOptions pool{.hidden = o_.hidden,
                      .width = o_.head_dim,
                      .run = o_.run,
                      .overlap = o_.chosen.has_value(),
                      .eps = o_.eps,
                      .rope = o_.rope};
  pool_.emplace(at, pool);
  pool_slot_ = w.layout().add_kv(one_key(o_.head_dim, 0));
  if (!o_.chosen) return;
  const PoolIndexer& index = *o_.chosen;
  const Weights own = at / "indexer";
  pool.width = index.head_dim;
  indexer_.emplace(
      Indexer{Pool(own, pool), own.linear("q_b_proj", index.heads * index.head_dim, o_.q_rank, Bias::none),
              own.linear("weights_proj", index.heads, o_.hidden, Bias::none),
              w.layout().add_kv({.kv_heads = 1, .key_dim = index.head_dim, .value_dim = 0, .window = 0})});
}

array PooledAttention::turned(const array& x, const Step& step, bool back) const {
  return turn_tail(x, step.positions(), o_.rope, back);
}

KeyChoice PooledAttention::choice(const array& x, const array& q_latent, Step& step) const {
  if (!indexer_ || fault("choice of keys ignored")) return every_key(step, o_.run);
  const PoolIndexer& index = *o_.chosen;
  const array q = mx::reshape(indexer_->query(q_latent), {step.count(), index.heads, index.head_dim});
  const array weights =
      mx::multiply(indexer_->weights(x), array(1.0f / std::sqrt(static_cast<float>(index.heads))));
  return choose_keys(turned(q, step), indexer_->pool(x, step), weights, step, indexer_->slot,
                     {.heads = index.heads,
                      .scale = 1.0f / std::sqrt(static_cast<float>(index.head_dim)),
                      .by_head = false,
                      .keep = index.keep,
                      .every = o_.run});
}

array PooledAttention::seen(const array& q, const array& k, const array& x, const array& q_latent,
                            Step& step) const {
  AttendOptions options{.scale = 1.0f / std::sqrt(static_cast<float>(o_.head_dim))};
  if (!pool_) {
    if (!fault("sinks dropped")) options.sinks = sinks_;
    return attend(q, k, std::nullopt, step, slot_, options);
  }
  const auto leveled = [](std::pair<array, array> seen) { return Leveled{seen.first, seen.second}; };
  const Leveled near = leveled(attend_level(q, k, std::nullopt, step, slot_, options));
  const KeyChoice chosen = choice(x, q_latent, step);
  options.chosen = &chosen;
  Leveled far = leveled(attend_level(q, (*pool_)(x, step), std::nullopt, step, pool_slot_, options));
  if (fault("pooled keys left out"))
    far.level = mx::full_like(far.level, array(-std::numeric_limits<float>::infinity()));
  return joined(near, far, fault("sinks dropped") ? std::nullopt : std::optional(sinks_));
}

array PooledAttention::operator()(const array& x, Step& step) const {
  const int tokens = x.shape(0);
  const array low = down_(x);
  const array q_latent = q_norm_(columns(low, 0, o_.q_rank));
  const array each = mx::reshape(q_(q_latent), {tokens, o_.heads, o_.head_dim});
  const array q =
      turned(fault("qk norm left out") ? each : kernels::rms_norm(each, std::nullopt, o_.eps), step);
  const array kv = kv_norm_(columns(low, o_.q_rank, o_.q_rank + o_.head_dim));
  const array k = turned(mx::reshape(kv, {tokens, 1, o_.head_dim}), step);
  const array answers = mx::reshape(seen(q, k, x, q_latent, step), {tokens, o_.heads, o_.head_dim});
  const array back = fault("answers not turned back") ? answers : turned(answers, step, true);
  const array grouped = out_a_.gather(mx::reshape(back, {tokens, o_.groups, -1}),
                                      mx::broadcast_to(group_ids_, {tokens, o_.groups}));
  return out_b_(mx::reshape(grouped, {tokens, o_.groups * o_.rank}));
}

}  // namespace mlxcel
