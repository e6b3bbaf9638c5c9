#include "state/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "state/join.h"
#include "state/kv_twin.h"
#include "state/pages.h"
#include "state/step_pages.h"

namespace mlxcel {
namespace {

/// softmax(q k^T) v of one row, in plain operations. q [count, heads, key_dim], k [kv_heads, keys, key_dim],
/// v [kv_heads, keys, value_dim], mask [count, keys] or [kv_heads, 1, count, keys] bool or none -> [count,
/// heads * value_dim], and what attend_level() says of it where `level` is given. `recent`: a mask [count,
/// keys] of those that bring other values.
struct Recent {
  array mask, values;
};
array attend_row(const array& q, const array& k, const array& v, const std::optional<array>& mask,
                 const AttendOptions& options, const std::optional<array>& bias = std::nullopt,
                 std::optional<array>* level = nullptr, const Recent* recent = nullptr) {
  const int count = q.shape(0), heads = q.shape(1), kv_heads = k.shape(0), keys = k.shape(1),
            group = heads / kv_heads;
  const auto grouped =
      mx::transpose(mx::reshape(q * array(options.scale), {count, kv_heads, group, -1}), {1, 2, 0, 3});
  array scores = mx::matmul(mx::reshape(grouped, {kv_heads, group * count, -1}), mx::swapaxes(k, 1, 2));
  if (options.softcap > 0.0f) scores = mx::tanh(scores / array(options.softcap)) * array(options.softcap);
  scores = mx::reshape(scores, {kv_heads, group, count, keys});
  if (bias) scores = mx::add(scores, mx::reshape(mx::swapaxes(*bias, 0, 1), scores.shape()));
  if (mask) scores = mx::where(*mask, scores, array(-std::numeric_limits<float>::infinity()));
  if (options.sinks) {
    const array sinks = mx::reshape(mx::astype(*options.sinks, mx::float32), {kv_heads, group, 1, 1});
    scores = mx::concatenate({scores, mx::broadcast_to(sinks, {kv_heads, group, count, 1})}, 3);
  }
  array weights = mx::softmax(scores, -1);
  if (level) {
    const array sum = mx::logsumexp(scores, -1);  // [kv_heads, group, count]
    *level = mx::reshape(mx::transpose(sum, {2, 0, 1}), {count, heads});
    weights = mx::where(mx::isfinite(mx::expand_dims(sum, -1)), weights, array(0.0f));
  }
  if (options.sinks) weights = mx::slice(weights, {0, 0, 0, 0}, {kv_heads, group, count, keys});
  const auto sum_of = [&](const array& w, const array& values) {
    return mx::matmul(mx::reshape(w, {kv_heads, group * count, keys}), values);
  };
  array out = !recent ? sum_of(weights, v)
                      : mx::add(sum_of(mx::where(recent->mask, array(0.0f), weights), v),
                                sum_of(mx::where(recent->mask, weights, array(0.0f)), recent->values));
  out = mx::transpose(mx::reshape(out, {kv_heads, group, count, -1}), {2, 0, 1, 3});
  return mx::reshape(out, {count, -1});
}

array rows_of(const array& x, int first, int count) {
  return mx::slice(x, {first, 0, 0}, {first + count, x.shape(1), x.shape(2)});
}

/// New keys or values [tokens, kv_heads, dim] at their places in a pool [pages, kv_heads, 32, dim].
array written(const array& pool, const array& x, const std::pair<array, array>& places) {
  const array updates = mx::reshape(mx::astype(x, pool.dtype()), {x.shape(0), 1, x.shape(1), 1, x.shape(2)});
  return mx::scatter(pool, {places.first, places.second}, updates, {0, 2});
}

/// Pages of a pool, as [kv_heads, keys, dim] f32.
array gathered(const array& pool, const array& pages) {
  const array taken = mx::transpose(mx::take(pool, pages, 0), {1, 0, 2, 3});
  return mx::astype(mx::reshape(taken, {pool.shape(1), -1, pool.shape(3)}), mx::float32);
}

/// The step's keys (and values) written to a slot's pools.
void write_pools(Step::Pages& pages, const Step& step, int slot, const array& k,
                 const std::optional<array>& v) {
  KvPlace& place = pages.store->places[static_cast<size_t>(slot)];
  const auto& places = pages.places_of(step, place.group);
  // The pool's only reference moves into the graph, so that the scatter may write where it lies.
  const auto replace = [&](std::optional<array>& pool, const array& x, kernels::PageType type, int split) {
    const array before = *std::exchange(pool, std::nullopt);
    pool = written(before, as_kept(x, type, split), places);
  };
  replace(place.keys, k, place.format.keys, place.blocks.key_split);
  if (v) replace(place.values, *v, place.format.values, 0);
  if (place.recent) replace(place.plain, *v, place.format.keys, 0);
  pages.written.push_back({slot, *place.keys, place.values, place.plain});
}

/// Pages [from, to) of a row.
array page_ids(const StepRow& row, int group, int from, int to) {
  const auto& table = row.state->impl().tables[static_cast<size_t>(group)];
  return array(table.begin() + from, Shape{to - from}, mx::int32);
}

array first_entries(const array& x, int count) {
  Shape stop = x.shape();
  stop.back() = count;
  return mx::slice(x, Shape(stop.size(), 0), stop);
}

/// What each key's distance from its query adds to the scores: bias [count, heads, reach], away [count, keys]
/// -> [count, heads, keys].
array by_distance(const array& bias, const array& away) {
  const int reach = bias.shape(2);
  const array index = mx::expand_dims(mx::clip(away, array(0), array(reach - 1)), 1);
  const Shape wanted{bias.shape(0), bias.shape(1), away.shape(1)};
  const array all = mx::take_along_axis(bias, mx::broadcast_to(index, wanted), -1);
  const array known = mx::logical_and(mx::greater_equal(away, array(0)), mx::less(away, array(reach)));
  return mx::where(mx::expand_dims(known, 1), all, array(0.0f));
}

/// A mask [count, keys] and a choice [sets, count, keys], as [kv_heads, 1 or heads of each, count, keys].
array narrowed(const array& mask, const array& chosen, int kv_heads) {
  if (chosen.shape(0) > kv_heads)
    return mx::reshape(mx::logical_and(mask, chosen), {kv_heads, -1, chosen.shape(1), chosen.shape(2)});
  return mx::expand_dims(mx::logical_and(mask, mx::repeat(chosen, kv_heads / chosen.shape(0), 0)), 1);
}

array attend_reference(const array& q, const array& k, const std::optional<array>& v, Step& step, int slot,
                       const AttendOptions& options, std::vector<array>* levels = nullptr) {
  Step::Pages& pages = step.pages();
  KvPlace& place = pages.store->places[static_cast<size_t>(slot)];
  const int window = pages.store->groups[static_cast<size_t>(place.group)].window();
  const int chunk = pages.store->layout.kv()[static_cast<size_t>(slot)].chunk;
  const int latent = pages.store->layout.kv()[static_cast<size_t>(slot)].latent;
  const int block = pages.store->layout.kv()[static_cast<size_t>(slot)].block;
  write_pools(pages, step, slot, k, v);

  std::vector<array> outs;
  for (size_t r = 0; r < step.rows().size(); ++r) {
    const StepRow& row = step.rows()[r];
    const int end = row.position + row.count;
    const int drafts = end - row.open;  // queries from here on see what this one sees, and each other
    const int oldest = chunk > 0    ? row.position - row.position % chunk
                       : window > 0 ? std::max(0, std::min(row.position, drafts) - window + 1)
                                    : 0;
    const int from = oldest / kPageTokens, to = (end + kPageTokens - 1) / kPageTokens;
    const array ids = page_ids(row, place.group, from, to);
    const array keys = mx::reshape(mx::arange(from * kPageTokens, to * kPageTokens), {1, -1});
    const array queries = mx::reshape(mx::arange(row.position, end), {-1, 1});
    array mask = mx::less_equal(keys, queries);
    if (block > 0) {
      const array own_end =
          mx::add(mx::subtract(queries, mx::remainder(queries, array(block))), array(block));
      mask = mx::less(keys, mx::minimum(own_end, array(end)));
    }
    if (row.open > 0)
      mask = mx::logical_or(
          mask, mx::logical_and(mx::greater_equal(queries, array(drafts)), mx::less(keys, array(end))));
    const array eldest = mx::minimum(queries, array(drafts));
    if (chunk > 0)
      mask = mx::logical_and(mask, mx::greater_equal(keys, eldest - mx::remainder(eldest, array(chunk))));
    if (window > 0) mask = mx::logical_and(mask, mx::greater(keys, eldest - array(window)));
    // Behind the row's end a page may hold another row's old values; 0 * inf must not get in.
    const array held =
        mx::reshape(mx::less(mx::arange(from * kPageTokens, to * kPageTokens), array(end)), {1, -1, 1});
    const array row_keys = gathered(*place.keys, ids);
    const array values = mx::where(
        held, latent > 0 ? first_entries(row_keys, latent) : gathered(*place.values, ids), array(0.0f));
    if (options.chosen) mask = narrowed(mask, options.chosen->masks.at(r), k.shape(1));
    std::optional<array> bias;
    if (options.bias)
      bias = by_distance(rows_of(*options.bias, row.first, row.count), mx::subtract(queries, keys));
    std::optional<array> level;
    std::optional<Recent> recent;
    if (place.recent)
      recent = {mx::greater(keys, eldest - array(place.recent->keys)),
                mx::where(held, gathered(*place.plain, ids), array(0.0f))};
    outs.push_back(attend_row(rows_of(q, row.first, row.count), row_keys, values, mask, options, bias,
                              levels ? &level : nullptr, recent ? &*recent : nullptr));
    if (levels) levels->push_back(*level);
  }
  return outs.size() == 1 ? outs[0] : mx::concatenate(outs, 0);
}

kernels::AttentionForm form_of(const array& q, const KvSpec& spec, const AttendOptions& options) {
  return {.heads = q.shape(1),
          .window = spec.window,
          .scale = options.scale,
          .softcap = options.softcap,
          .chunk = spec.chunk,
          .block = spec.block,
          .bias = options.bias,
          .chosen = options.chosen ? options.chosen->bits : std::nullopt};
}

void check(const array& q, const array& k, const std::optional<array>& v, const Step& step) {
  if (q.ndim() != 3 || k.ndim() != 3 || (v && v->ndim() != 3) || q.shape(0) != step.count() ||
      k.shape(0) != step.count() || (v && (v->shape(0) != step.count() || v->shape(1) != k.shape(1))) ||
      k.shape(1) < 1 || q.shape(1) % k.shape(1) != 0 || q.shape(2) != k.shape(2))
    fail(ErrorKind::internal, "attend: q {}, k {}, v {} in a step of {} tokens", to_string(q.shape()),
         to_string(k.shape()), v ? to_string(v->shape()) : "none", step.count());
}

}  // namespace

namespace {

kernels::PagePool pool_of(const PageGroup& group, size_t offset, const kernels::PageBlocks& blocks) {
  return {reinterpret_cast<char*>(group.memory->data()) + offset, group.page_bytes, blocks, group.memory};
}

bool keeps_recent(Step& step, int slot) {
  return step.pages().store->places[static_cast<size_t>(slot)].recent.has_value();
}

/// Recent keys and older ones, each with the values that they bring, apart.
struct Apart {
  Leveled near, far;
};
Apart attend_apart(const array& q, const array& k, const std::optional<array>& v, Step& step, int slot,
                   const AttendOptions& options) {
  Step::Pages& pages = step.pages();
  StateStore::Impl& store = *pages.store;
  const KvSpec& spec = store.layout.kv()[static_cast<size_t>(slot)];
  const KvPlace& place = store.places[static_cast<size_t>(slot)];
  const PageGroup& group = store.groups[static_cast<size_t>(place.recent->group)];
  const array& old = pages.old_keys(step, place.recent->keys);
  const auto both = [](const std::optional<array>& chosen, const array& bits) {
    return chosen ? mx::bitwise_and(*chosen, bits) : bits;
  };
  kernels::AttentionForm near = form_of(q, spec, options), far = near;
  far.chosen = both(far.chosen, old);
  if (spec.chunk > 0 || near.chosen)
    near.chosen = both(near.chosen, mx::bitwise_invert(old));
  else
    near.window = place.recent->keys;  // shorter than a window of the slot's own
  const PageGroup& coded = store.groups[static_cast<size_t>(place.group)];
  const kernels::PagePool recent = pool_of(group, place.recent->offset, place.recent->blocks);
  const auto [near_out, near_level] =
      kernels::paged_attention_level(q, k, v, recent, pages.rows_of(step, place.recent->group), near);
  const auto [far_out, far_level] = kernels::paged_attention_level(
      q, k, v, pool_of(coded, place.offset, place.blocks), pages.rows_of(step, place.group), far);
  return {{near_out, near_level}, {far_out, far_level}};
}

/// The slot a call is for, once it fits.
const KvSpec& checked(const array& q, const array& k, const std::optional<array>& v, Step& step, int slot,
                      const AttendOptions& options) {
  check(q, k, v, step);
  const StateStore::Impl& store = *step.pages().store;
  const KvSpec& spec = store.layout.kv().at(static_cast<size_t>(slot));
  if (k.shape(1) != spec.kv_heads || k.shape(2) != spec.key_dim || (v ? v->shape(2) : 0) != spec.value_dim ||
      (!v && spec.latent == 0))
    fail(ErrorKind::internal, "attend: k {} and v {}, KV slot {} holds {} heads of {} and {}, latent {}",
         to_string(k.shape()), v ? to_string(v->shape()) : "none", slot, spec.kv_heads, spec.key_dim,
         spec.value_dim, spec.latent);
  if (options.bias && (options.softcap > 0.0f || spec.block > 0))
    fail(ErrorKind::internal, "attend: weights of distances beside a cap or blocks, KV slot {}", slot);
  if (options.chosen && (spec.window > 0 || spec.chunk > 0))
    fail(ErrorKind::internal, "attend: keys are chosen in KV slot {}, which has a window or chunks", slot);
  return spec;
}

}  // namespace

array attend(const array& q, const array& k, const std::optional<array>& v, Step& step, int slot,
             const AttendOptions& options) {
  const KvSpec& spec = checked(q, k, v, step, slot, options);
  if (step.pages().store->mode == KernelMode::reference)
    return attend_reference(q, k, v, step, slot, options);
  if (keeps_recent(step, slot)) {
    const Apart apart = attend_apart(q, k, v, step, slot, options);
    return joined(apart.near, apart.far, options.sinks);
  }
  const AttendPlace place = attend_place(step, slot);
  return kernels::paged_attention(q, k, v, options.sinks, place.pool, place.rows, form_of(q, spec, options));
}

std::pair<array, array> attend_level(const array& q, const array& k, const std::optional<array>& v,
                                     Step& step, int slot, const AttendOptions& options) {
  const KvSpec& spec = checked(q, k, v, step, slot, options);
  if (options.sinks)
    fail(ErrorKind::internal, "attend: sinks where attentions are yet to be joined, KV slot {}", slot);
  if (step.pages().store->mode == KernelMode::reference) {
    std::vector<array> levels;
    const array out = attend_reference(q, k, v, step, slot, options, &levels);
    return {out, levels.size() == 1 ? levels[0] : mx::concatenate(levels, 0)};
  }
  if (keeps_recent(step, slot)) {
    const Apart apart = attend_apart(q, k, v, step, slot, options);
    return {joined(apart.near, apart.far, std::nullopt), joined_level(apart.near, apart.far)};
  }
  const AttendPlace place = attend_place(step, slot);
  return kernels::paged_attention_level(q, k, v, place.pool, place.rows, form_of(q, spec, options));
}

KeyChoice every_key(const Step& step, int every) {
  KeyChoice choice;
  int pages = 1;
  for (const StepRow& row : step.rows())
    pages = std::max(pages, (row.position + row.count + kPageTokens - 1) / kPageTokens);
  if (kernel_mode() == KernelMode::reference) {
    for (const StepRow& row : step.rows()) {
      const int end = row.position + row.count;
      const array keys =
          mx::reshape(mx::arange((end + kPageTokens - 1) / kPageTokens * kPageTokens), {1, 1, -1});
      const array queries = mx::reshape(mx::arange(row.position, end), {1, -1, 1});
      const array last = mx::equal(mx::remainder(keys, array(every)), array(every - 1));
      choice.masks.push_back(mx::logical_and(last, mx::less_equal(keys, queries)));
    }
    return choice;
  }
  std::vector<uint32_t> words(static_cast<size_t>(step.count()) * static_cast<size_t>(pages));
  for (const StepRow& row : step.rows())
    for (int i = 0; i < row.count; ++i) {
      uint32_t* const own = words.data() + static_cast<size_t>(row.first + i) * static_cast<size_t>(pages);
      for (int key = every - 1; key <= row.position + i; key += every)
        own[key / kPageTokens] |= 1u << (key % kPageTokens);
    }
  choice.bits = array(words.data(), {step.count(), 1, pages}, mx::uint32);
  return choice;
}

namespace {

/// The same as kernels::select_keys(), in plain operations, as masks.
KeyChoice choose_reference(const array& q, const array& k, const std::optional<array>& weights, Step& step,
                           int slot, const kernels::SelectionForm& form) {
  const array least(-std::numeric_limits<float>::infinity()), most(std::numeric_limits<float>::infinity());
  Step::Pages& pages = step.pages();
  KvPlace& place = pages.store->places[static_cast<size_t>(slot)];
  write_pools(pages, step, slot, k, std::nullopt);
  KeyChoice choice;
  for (const StepRow& row : step.rows()) {
    const int end = row.position + row.count, to = (end + kPageTokens - 1) / kPageTokens,
              keys = to * kPageTokens;
    const array row_keys = gathered(*place.keys, page_ids(row, place.group, 0, to));
    array scores =
        mx::matmul(mx::swapaxes(rows_of(q, row.first, row.count), 0, 1), mx::swapaxes(row_keys, 1, 2));
    scores = mx::multiply(scores, array(form.scale));  // [heads, count, keys]
    if (weights) {
      const array own = mx::slice(*weights, {row.first, 0}, {row.first + row.count, form.heads});
      const array weighed =
          mx::multiply(mx::maximum(scores, array(0.0f)), mx::expand_dims(mx::transpose(own), 2));
      scores = mx::sum(weighed, 0, true);
    }
    const array queries = mx::reshape(mx::arange(row.position, end), {-1, 1});
    const array visible = mx::less_equal(mx::reshape(mx::arange(keys), {1, -1}), queries);
    scores = mx::where(visible, scores, least);
    if (form.every > 1) {
      const array key = mx::reshape(mx::arange(keys), {1, -1});
      scores =
          mx::where(mx::equal(mx::remainder(key, array(form.every)), array(form.every - 1)), scores, least);
    }
    const int blocks = (keys + form.block - 1) / form.block, sets = scores.shape(0);
    scores = mx::pad(
        scores, std::vector<std::pair<int, int>>{{0, 0}, {0, 0}, {0, blocks * form.block - keys}}, least);
    scores = mx::max(mx::reshape(scores, {sets, row.count, blocks, form.block}), 3);
    const array own = mx::floor_divide(queries, array(form.block));
    const array block = mx::reshape(mx::arange(blocks), {1, -1});
    const array local =
        mx::logical_and(mx::less_equal(block, own), mx::greater(block, own - array(form.local)));
    scores = mx::where(local, most, scores);
    array chosen = mx::greater(scores, least);
    // Of equals the earlier ones: both sorts are stable.
    const array rank = mx::argsort(mx::argsort(mx::negative(scores), -1), -1);
    chosen = mx::logical_and(chosen, mx::less(mx::astype(rank, mx::int32), array(form.keep)));
    chosen = mx::slice(mx::repeat(chosen, form.block, 2), {0, 0, 0}, {sets, row.count, keys});
    choice.masks.push_back(mx::logical_and(chosen, visible));
  }
  return choice;
}

}  // namespace

KeyChoice choose_keys(const array& q, const array& k, const std::optional<array>& weights, Step& step,
                      int slot, const kernels::SelectionForm& form) {
  const StateStore::Impl& store = *step.pages().store;
  const KvSpec& spec = store.layout.kv().at(static_cast<size_t>(slot));
  if (spec.value_dim != 0 || spec.latent != 0 || spec.kv_heads != 1 || spec.window > 0 || spec.chunk > 0 ||
      q.shape(0) != step.count() || k.shape() != Shape{step.count(), 1, spec.key_dim})
    fail(ErrorKind::internal,
         "keys to choose: q {}, k {} in a step of {} tokens, KV slot {} holds {} heads of {} and {}",
         to_string(q.shape()), to_string(k.shape()), step.count(), slot, spec.kv_heads, spec.key_dim,
         spec.value_dim);
  if (store.mode == KernelMode::reference) return choose_reference(q, k, weights, step, slot, form);
  const AttendPlace place = attend_place(step, slot);
  return {kernels::select_keys(q, k, weights, place.pool, place.rows, form), {}};
}

AttendPlace attend_place(Step& step, int slot) {
  Step::Pages& pages = step.pages();
  StateStore::Impl& store = *pages.store;
  if (store.mode == KernelMode::reference)
    fail(ErrorKind::internal, "attend: pages of the reference kernels");
  const KvSpec& spec = store.layout.kv().at(static_cast<size_t>(slot));
  const KvPlace& place = store.places[static_cast<size_t>(slot)];
  const PageGroup& group = store.groups[static_cast<size_t>(place.group)];
  // Blocks of no heads, which fit nothing: only attend() reads recent values and older ones.
  const kernels::PageBlocks blocks = place.recent ? kernels::PageBlocks{} : place.blocks;
  return {pool_of(group, place.offset, blocks), pages.rows_of(step, place.group), spec.window, spec.chunk};
}

array attend_alone(const array& q, const array& k, const array& v, const Step& step,
                   const AttendOptions& options, const Sight& sight) {
  check(q, k, v, step);
  if (kernel_mode() == KernelMode::native) {
    KvSpec spec;
    spec.window = sight.window;
    return kernels::alone_attention(q, k, v, options.sinks, step.offsets(), form_of(q, spec, options),
                                    sight.causal);
  }
  std::vector<array> outs;
  for (const StepRow& row : step.rows()) {
    std::optional<array> mask;
    if (sight.causal || sight.window > 0) {
      const array keys = mx::reshape(mx::arange(0, row.count), {1, -1});
      const array away = mx::subtract(mx::reshape(mx::arange(0, row.count), {-1, 1}), keys);
      mask = mx::full({row.count, row.count}, true, mx::bool_);
      if (sight.causal) mask = mx::logical_and(*mask, mx::greater_equal(away, array(0)));
      if (sight.window > 0) mask = mx::logical_and(*mask, mx::less(mx::abs(away), array(sight.window)));
    }
    outs.push_back(attend_row(rows_of(q, row.first, row.count),
                              mx::swapaxes(rows_of(k, row.first, row.count), 0, 1),
                              mx::swapaxes(rows_of(v, row.first, row.count), 0, 1), mask, options));
  }
  return outs.size() == 1 ? outs[0] : mx::concatenate(outs, 0);
}

}  // namespace mlxcel
