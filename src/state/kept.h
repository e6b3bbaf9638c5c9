// Rows put aside for prompts that begin alike. Their pages are idle: nobody's while no running row shares
// them. Owner: the engine's prompt cache (must not outlive the store). Thread: model thread.
#pragma once

#include <cstddef>

#include "state/store.h"

namespace mlxcel {

class KeptRow {
 public:
  /// Takes `row` over, its recurrent state in buffers of its own.
  explicit KeptRow(RowState row);
  ~KeptRow();
  KeptRow(const KeptRow&) = delete;
  KeptRow& operator=(const KeptRow&) = delete;

  int length() const { return row_.length(); }
  /// The longest prefix of at most `length` tokens that can be taken from here; 0: none. Recurrent state
  /// cannot be cut, windows only as far as they still reach.
  int usable(int length) const;
  /// A running row of the first `length` tokens, `length` from usable().
  RowState fork(int length);
  size_t recurrent_bytes() const { return recurrent_bytes_; }
  RowState& row() { return row_; }  // for this room

 private:
  mutable RowState row_;
  size_t recurrent_bytes_ = 0;
};

/// Of all pages in kept rows, each counted once.
size_t kept_page_bytes(StateStore& store);
/// Pages a row may have: those that are free, and those that come free when kept rows go.
int available_pages(StateStore& store);
/// Memory that `pages` more pages would take: those that were used before have theirs.
size_t fresh_bytes(StateStore& store, int pages);

}  // namespace mlxcel
