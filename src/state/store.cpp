#include "state/store.h"

#include <mlx/transforms.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "base/error.h"
#include "base/memory.h"
#include "state/pages.h"

namespace mlxcel {
namespace {

// Bounds on what a checkpoint's config may ask for, so that sizes below cannot overflow.
constexpr int kMostHeads = 1 << 16;
constexpr int kMostWidth = 1 << 20;

size_t elements(const Shape& shape) {
  size_t count = 1;
  for (const auto extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

}  // namespace

int StateLayout::add_kv(const KvSpec& spec) {
  const auto bounded = [](int value, int most) { return value >= 1 && value <= most; };
  if (!bounded(spec.kv_heads, kMostHeads) || !bounded(spec.key_dim, kMostWidth) || spec.value_dim < 0 ||
      spec.value_dim > kMostWidth || spec.latent < 0 || spec.block < 0 ||
      (spec.block > 0 && spec.chunk > 0) || spec.latent > spec.key_dim ||
      (spec.latent > 0 && spec.value_dim > 0) || spec.window < 0 || spec.chunk < 0 ||
      (spec.window > 0 && spec.chunk > 0) ||
      static_cast<long long>(spec.kv_heads) * (spec.key_dim + spec.value_dim) > kMostWidth * 64LL)
    fail(ErrorKind::bad_checkpoint,
         "KV slot {}: {} heads of {} and {}, latent {}, window {}, chunk {}, block {} are out of bounds",
         kv_.size(), spec.kv_heads, spec.key_dim, spec.value_dim, spec.latent, spec.window, spec.chunk,
         spec.block);
  kv_.push_back(spec);
  return static_cast<int>(kv_.size()) - 1;
}

int StateLayout::add_recurrent(const RecurrentSpec& spec) {
  size_t count = 1;
  for (const auto extent : spec.shape) {
    if (extent < 1 || static_cast<size_t>(extent) > (size_t{1} << 30) / count)
      fail(ErrorKind::bad_checkpoint, "recurrent slot {} ({}): shape {} is out of bounds", recurrent_.size(),
           spec.name, to_string(spec.shape));
    count *= static_cast<size_t>(extent);
  }
  recurrent_.push_back(spec);
  return static_cast<int>(recurrent_.size()) - 1;
}

void StateLayout::add_length_limit(int limit, bool grows) {
  if (limit < 1) fail(ErrorKind::internal, "length limit {}", limit);
  if (limit_ != 0 && (limit_ != limit || grows_ != grows))
    fail(ErrorKind::unsupported, "rotations that change at {} tokens and at {} in one model", limit_, limit);
  limit_ = limit;
  grows_ = grows;
}

int StateLayout::regime(int horizon) const {
  if (limit_ == 0 || horizon <= limit_) return 0;
  return grows_ ? horizon : limit_ + 1;
}

size_t StateLayout::kv_bytes_per_token(mx::Dtype dtype) const {
  size_t bytes = 0;
  for (const KvSpec& spec : kv_)
    bytes += static_cast<size_t>(spec.kv_heads) * static_cast<size_t>(spec.key_dim + spec.value_dim) *
             mx::size_of(dtype);
  return bytes;
}

size_t StateLayout::kv_bytes_per_token(const std::vector<KvFormat>& formats) const {
  size_t bytes = 0;
  for (size_t slot = 0; slot < kv_.size(); ++slot) {
    const KvSpec& spec = kv_[slot];
    const KvFormat& format = formats.at(slot);
    bytes += kernels::page_blocks({format.keys, format.values, spec.latent}, spec.kv_heads, spec.key_dim,
                                  spec.value_dim)
                 .bytes();
  }
  return (bytes + kPageTokens - 1) / kPageTokens;
}

size_t StateLayout::recurrent_bytes() const {
  size_t bytes = 0;
  for (const RecurrentSpec& spec : recurrent_) bytes += elements(spec.shape) * sizeof(float);
  return bytes;
}

size_t RecurrentSnapshot::bytes() const {
  size_t total = 0;
  for (const auto& state : states)
    if (state) total += state->nbytes();
  return total;
}

StateStore::Impl::Impl(StateLayout given, const StoreOptions& chosen)
    : layout(std::move(given)), options(chosen), mode(kernel_mode()) {
  const auto& specs = layout.kv();
  places.resize(specs.size());
  if (options.formats.empty() && !specs.empty()) {
    const kernels::PageType type = kernels::page_type(options.kv_dtype);
    options.formats.assign(specs.size(), {type, type});
  }
  if (options.formats.size() != specs.size())
    fail(ErrorKind::internal, "KV pages: formats for {} slots, the layout has {}", options.formats.size(),
         specs.size());
  size_t all_bytes = 0;  // of one page in every group
  for (size_t slot = 0; slot < specs.size(); ++slot) {
    const KvSpec& spec = specs[slot];
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const PageGroup& g) { return g.window() == spec.window; });
    const auto index = static_cast<size_t>(found - groups.begin());
    if (found == groups.end()) groups.emplace_back(spec.window, 0);
    PageGroup& group = groups[index];
    KvPlace& place = places[slot];
    place.group = static_cast<int>(index);
    place.format = options.formats[slot];
    place.blocks = kernels::page_blocks({place.format.keys, place.format.values, spec.latent}, spec.kv_heads,
                                        spec.key_dim, spec.value_dim);
    place.offset = group.page_bytes;
    group.page_bytes += place.blocks.bytes();
    all_bytes += place.blocks.bytes();
    group.slots.push_back(static_cast<int>(slot));
  }
  if (groups.empty()) return;

  const size_t available = available_memory();
  size_t pages = (options.max_tokens + kPageTokens - 1) / kPageTokens;
  if (options.max_tokens == 0) {
    if (available == 0)
      fail(ErrorKind::out_of_memory,
           "KV pages: available memory is unknown here; set the number of tokens to hold");
    pages = available / 2 / all_bytes;
    if (pages == 0)
      fail(ErrorKind::out_of_memory, "KV pages: {} tokens take {}, half of available memory is {}",
           kPageTokens, format_bytes(all_bytes), format_bytes(available / 2));
    pages = std::min(pages, static_cast<size_t>(INT_MAX / kPageTokens));
  } else if (pages > static_cast<size_t>(INT_MAX / kPageTokens)) {
    fail(ErrorKind::invalid_request, "KV pages: {} tokens, at most {}", options.max_tokens,
         INT_MAX / kPageTokens * kPageTokens);
  } else if (available != 0 && pages > available / all_bytes) {
    fail(ErrorKind::out_of_memory, "KV pages: {} tokens take {}, available memory is {}", options.max_tokens,
         format_bytes(pages * all_bytes), format_bytes(available));
  }
  pages_total = static_cast<int>(pages);
  for (PageGroup& group : groups) {
    PageGroup sized(group.window(), pages_total);
    sized.slots = std::move(group.slots);
    sized.page_bytes = group.page_bytes;
    if (mode == KernelMode::native) sized.memory = std::make_shared<PageMemory>(group.page_bytes * pages);
    group = std::move(sized);
  }
}

void StateStore::Impl::grow_pools(const PageGroup& group) {
  if (mode == KernelMode::native) return;
  const int touched = group.touched();
  for (const int slot : group.slots) {
    KvPlace& place = places[static_cast<size_t>(slot)];
    const int have = place.keys ? place.keys->shape(0) : 0;
    if (have >= touched) continue;
    const int want = std::min(group.total(), std::max(touched, have * 2));
    const KvSpec& spec = layout.kv()[static_cast<size_t>(slot)];
    const auto grown = [&](std::optional<array>& pool, int dim, kernels::PageType type) {
      // The twin of coded pages holds what they stand for.
      const mx::Dtype dtype = type == kernels::PageType::f16    ? mx::float16
                              : type == kernels::PageType::bf16 ? mx::bfloat16
                                                                : mx::float32;
      array fresh = mx::zeros({want - have, spec.kv_heads, kPageTokens, dim}, dtype);
      pool = pool ? mx::concatenate({*pool, fresh}, 0) : fresh;
    };
    grown(place.keys, spec.key_dim, place.format.keys);
    if (spec.value_dim > 0) grown(place.values, spec.value_dim, place.format.values);
    if (place.recent) grown(place.plain, spec.value_dim, place.format.keys);
  }
}

void StateStore::Impl::copy_page(PageGroup& group, int from, int to) {
  if (mode == KernelMode::native) {
    std::byte* const base = group.memory->data();
    std::memcpy(base + static_cast<size_t>(to) * group.page_bytes,
                base + static_cast<size_t>(from) * group.page_bytes, group.page_bytes);
    return;
  }
  for (const int slot : group.slots) {
    KvPlace& place = places[static_cast<size_t>(slot)];
    for (auto* pool : {&place.keys, &place.values, &place.plain}) {
      if (!*pool) continue;
      const Shape& s = (*pool)->shape();
      const array page = mx::slice(**pool, Shape{from, 0, 0, 0}, Shape{from + 1, s[1], s[2], s[3]});
      *pool = mx::slice_update(**pool, page, Shape{to, 0, 0, 0}, Shape{to + 1, s[1], s[2], s[3]});
    }
  }
}

StateStore::StateStore(StateLayout layout, const StoreOptions& options)
    : impl_(std::make_unique<Impl>(std::move(layout), options)) {}
StateStore::~StateStore() = default;

RowState StateStore::make_row(int horizon) {
  auto row = std::make_unique<RowState::Impl>();
  row->horizon = horizon;
  row->store = impl_.get();
  row->tables.resize(impl_->groups.size());
  row->kept.resize(impl_->groups.size(), 0);
  row->recurrent.resize(impl_->layout.recurrent().size());
  return RowState(std::move(row));
}

const StateLayout& StateStore::layout() const { return impl_->layout; }
mx::Dtype StateStore::kv_dtype() const { return impl_->options.kv_dtype; }
int StateStore::pages_total() const { return impl_->pages_total; }

int StateStore::pages_free() const {
  int free = impl_->pages_total;
  for (const PageGroup& group : impl_->groups) free = std::min(free, group.free());
  return free;
}

int StateStore::pages_for(size_t tokens) const {
  if (impl_->groups.empty()) return 0;
  return static_cast<int>(std::min<size_t>((tokens + kPageTokens - 1) / kPageTokens, INT_MAX));
}

size_t StateStore::bytes() const {
  size_t bytes = 0;
  for (const PageGroup& group : impl_->groups)
    bytes += static_cast<size_t>(group.touched()) * group.page_bytes;
  return bytes;
}

RowState::RowState(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RowState::~RowState() = default;
RowState::RowState(RowState&&) noexcept = default;
RowState& RowState::operator=(RowState&&) noexcept = default;

int RowState::length() const { return impl_->length; }
void RowState::reserve(int count) { impl_->reserve(count); }
void RowState::advance(int count) { impl_->advance(count); }

void RowState::truncate(int length) {
  if (!impl_->recurrent.empty() && length != 0 && length != impl_->length)
    fail(ErrorKind::unsupported, "truncate to {} of {} tokens: recurrent state goes back only to a snapshot",
         length, impl_->length);
  impl_->truncate(length);
  if (length == 0)
    for (RecurrentPart& part : impl_->recurrent) part = {};
}

int RowState::horizon() const { return impl_->horizon; }
void RowState::set_horizon(int tokens) { impl_->horizon = tokens; }

RowState RowState::fork() const {
  auto copy = std::make_unique<Impl>();
  const auto pages = static_cast<size_t>((impl_->length + kPageTokens - 1) / kPageTokens);
  copy->store = impl_->store;
  copy->length = impl_->length;
  copy->horizon = impl_->horizon;
  copy->kept = impl_->kept;
  copy->recurrent = impl_->recurrent;
  copy->tables.resize(impl_->tables.size());
  std::vector<std::vector<int32_t>> tables(impl_->tables.size());
  for (size_t g = 0; g < tables.size(); ++g)
    tables[g].assign(impl_->tables[g].begin(), impl_->tables[g].begin() + static_cast<std::ptrdiff_t>(pages));
  for (size_t g = 0; g < tables.size(); ++g)
    for (const int32_t page : tables[g])
      if (page >= 0) impl_->store->groups[g].share(page);
  copy->tables = std::move(tables);
  return RowState(std::move(copy));
}

RecurrentSnapshot RowState::snapshot() const {
  RecurrentSnapshot snapshot{impl_->length, {}};
  std::vector<array> made;
  for (const RecurrentPart& part : impl_->recurrent) {
    if (!part.stack) {
      snapshot.states.emplace_back();
      continue;
    }
    // A copy of its own: a view would keep the state of every row of that step alive.
    const array whole = *part.stack;
    Shape start(whole.ndim(), 0), stop = whole.shape();
    start[0] = part.index;
    stop[0] = part.index + 1;
    array one = mx::slice(whole, start, stop);
    if (whole.shape(0) > 1) one = mx::contiguous(one);
    snapshot.states.push_back(one);
    made.push_back(one);
  }
  mx::eval(made);
  return snapshot;
}

void RowState::restore(const RecurrentSnapshot& snapshot) {
  const auto& specs = impl_->store->layout.recurrent();
  if (snapshot.states.size() != specs.size())
    fail(ErrorKind::internal, "restore: a snapshot of {} recurrent slots, the model has {}",
         snapshot.states.size(), specs.size());
  for (size_t slot = 0; slot < specs.size(); ++slot) {
    if (!snapshot.states[slot]) continue;
    Shape want = specs[slot].shape;
    want.insert(want.begin(), 1);
    if (snapshot.states[slot]->shape() != want)
      fail(ErrorKind::internal, "restore: slot {} ({}) is {}, expected {}", slot, specs[slot].name,
           to_string(snapshot.states[slot]->shape()), to_string(want));
  }
  if (impl_->tables.empty())
    impl_->length = snapshot.length;  // no keys to hold: any snapshot of this model will do
  else
    impl_->truncate(snapshot.length);
  for (size_t slot = 0; slot < specs.size(); ++slot) impl_->recurrent[slot] = {snapshot.states[slot], 0};
}

}  // namespace mlxcel
