#include "state/row_image.h"

#include <cstring>

#include "state/pages.h"

namespace mlxcel {
namespace {

constexpr uint64_t kForm = 0x316567616d49774d;  // changes with the order below

size_t elements(const Shape& shape) {
  size_t count = 1;
  for (const auto extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

// [form, length, horizon, groups, {page bytes, first page} of each, recurrent slots, {bytes or 0} of each]
std::vector<uint64_t> head_of(StateStore::Impl& store, int length, int horizon, const std::vector<int>& kept,
                              const std::vector<bool>& present) {
  std::vector<uint64_t> head = {kForm, static_cast<uint64_t>(length), static_cast<uint64_t>(horizon),
                                store.groups.size()};
  for (size_t g = 0; g < store.groups.size(); ++g) {
    head.push_back(store.groups[g].page_bytes);
    head.push_back(static_cast<uint64_t>(kept[g]));
  }
  const auto& specs = store.layout.recurrent();
  head.push_back(specs.size());
  for (size_t slot = 0; slot < specs.size(); ++slot)
    head.push_back(present[slot] ? elements(specs[slot].shape) * sizeof(float) : 0);
  return head;
}

/// The first page that a row of `length` tokens still holds, had it only ever grown.
std::vector<int> first_pages(StateStore::Impl& store, int length) {
  std::vector<int> first;
  for (const PageGroup& group : store.groups) {
    const int oldest = group.window() == 0 ? 0 : length - kRollbackTokens - group.window() + 1;
    first.push_back(oldest > 0 ? oldest / kPageTokens : 0);
  }
  return first;
}

}  // namespace

std::unique_ptr<RowImage> RowImage::of(RowState row) {
  StateStore::Impl& store = *row.impl().store;
  if (store.mode != KernelMode::native || row.length() == 0) return nullptr;
  if (row.impl().kept != first_pages(store, row.length())) return nullptr;
  auto image = std::unique_ptr<RowImage>(new RowImage(std::move(row)));
  RowState::Impl& impl = image->row_.row().impl();
  std::vector<bool> present;
  for (const RecurrentPart& part : impl.recurrent) present.push_back(part.stack.has_value());
  const auto head = head_of(store, impl.length, impl.horizon, impl.kept, present);
  const auto raw = std::as_bytes(std::span(head));
  image->head_.assign(raw.begin(), raw.end());
  for (size_t g = 0; g < impl.tables.size(); ++g) {
    const PageGroup& group = store.groups[g];
    for (const int32_t page : impl.tables[g])
      if (page >= 0)
        image->parts_.emplace_back(group.memory->data() + static_cast<size_t>(page) * group.page_bytes,
                                   group.page_bytes);
  }
  for (const RecurrentPart& part : impl.recurrent) {
    if (!part.stack) continue;
    image->arrays_.push_back(*part.stack);  // a buffer of its own: KeptRow saw to it
    image->parts_.emplace_back(reinterpret_cast<const std::byte*>(part.stack->data<float>()),
                               part.stack->nbytes());
  }
  return image;
}

size_t RowImage::bytes() const {
  size_t total = head_.size();
  for (const auto& part : parts_) total += part.size();
  return total;
}

void RowImage::write(const std::function<void(std::span<const std::byte>)>& sink) const {
  sink(head_);
  for (const auto& part : parts_) sink(part);
}

std::optional<RowState> row_from_image(StateStore& store, std::span<const std::byte> bytes) {
  StateStore::Impl& impl = store.impl();
  if (impl.mode != KernelMode::native) return std::nullopt;
  const auto word = [&](size_t index) -> uint64_t {
    uint64_t value = 0;
    if ((index + 1) * sizeof value > bytes.size()) return ~uint64_t{0};
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return value;
  };
  const uint64_t length = word(1);
  const uint64_t horizon = word(2);
  constexpr uint64_t kMost = INT32_MAX / 2;
  if (length == 0 || length > kMost || horizon > kMost) return std::nullopt;
  // What this layout would have written, but for which recurrent slots were still zero.
  const auto& specs = impl.layout.recurrent();
  const size_t slots_at = 4 + 2 * impl.groups.size() + 1;
  std::vector<bool> present;
  for (size_t slot = 0; slot < specs.size(); ++slot) present.push_back(word(slots_at + slot) != 0);
  const auto first = first_pages(impl, static_cast<int>(length));
  const auto head = head_of(impl, static_cast<int>(length), static_cast<int>(horizon), first, present);
  const auto raw = std::as_bytes(std::span(head));
  size_t need = raw.size();
  const auto pages = (static_cast<size_t>(length) + kPageTokens - 1) / kPageTokens;
  for (size_t g = 0; g < impl.groups.size(); ++g)
    need += (pages - static_cast<size_t>(first[g])) * impl.groups[g].page_bytes;
  for (size_t slot = 0; slot < specs.size(); ++slot)
    need += present[slot] ? elements(specs[slot].shape) * sizeof(float) : 0;
  if (bytes.size() != need || std::memcmp(bytes.data(), raw.data(), raw.size()) != 0) return std::nullopt;

  RowState row = store.make_row(static_cast<int>(horizon));
  row.reserve(static_cast<int>(length));
  row.advance(static_cast<int>(length));
  const std::byte* at = bytes.data() + raw.size();
  for (size_t g = 0; g < impl.groups.size(); ++g) {
    const PageGroup& group = impl.groups[g];
    for (const int32_t page : row.impl().tables[g]) {
      if (page < 0) continue;
      std::memcpy(group.memory->data() + static_cast<size_t>(page) * group.page_bytes, at, group.page_bytes);
      at += group.page_bytes;
    }
  }
  if (specs.empty()) return row;
  RecurrentSnapshot snapshot;
  snapshot.length = static_cast<int>(length);
  for (size_t slot = 0; slot < specs.size(); ++slot) {
    if (!present[slot]) {
      snapshot.states.emplace_back();
      continue;
    }
    Shape shape = specs[slot].shape;
    shape.insert(shape.begin(), 1);
    std::vector<float> values(elements(specs[slot].shape));
    std::memcpy(values.data(), at, values.size() * sizeof(float));
    at += values.size() * sizeof(float);
    snapshot.states.emplace_back(array(values.begin(), shape, mx::float32));
  }
  row.restore(snapshot);
  return row;
}

}  // namespace mlxcel
