// A row's memory as bytes and back: pages as they lie, recurrent arrays, in an order that only the same
// layout, types and kernels read. Native kernels only. Thread: model thread, but for write(): any, while the
// row is pinned.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "state/kept.h"

namespace mlxcel {

/// Holds the row, whose shared pages nobody writes, until it is dropped (on the model thread).
class RowImage {
 public:
  /// Nothing where the row cannot be told by its length alone (windows that were cut), or under reference
  /// kernels.
  static std::unique_ptr<RowImage> of(RowState row);
  size_t bytes() const;
  void write(const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  explicit RowImage(RowState row) : row_(std::move(row)) {}
  KeptRow row_;
  std::vector<std::byte> head_;
  std::vector<std::span<const std::byte>> parts_;
  std::vector<array> arrays_;
};

/// Nothing for bytes that are not of this layout. Throws out_of_memory where pages are short.
std::optional<RowState> row_from_image(StateStore& store, std::span<const std::byte> bytes);

}  // namespace mlxcel
