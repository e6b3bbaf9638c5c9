// Pages behind StateStore: which are free, who shares them, where their bytes are. Internal to this room.
// A page belongs to a group: the layers that forget alike (full attention, or one distinct window). It holds
// 32 tokens of every layer in its group, so memory grows with use and a row has one table per group.
// Owner: StateStore; graph nodes hold the memory by shared_ptr. Thread: model thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/attention.h"
#include "state/store.h"

namespace mlxcel {

/// Address space for a pool: 2 MiB aligned, huge pages where the system gives them, committed on touch.
class PageMemory {
 public:
  explicit PageMemory(size_t bytes);
  ~PageMemory();
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  std::byte* data_ = nullptr;
};

class PageGroup {
 public:
  PageGroup(int window, int total) : window_(window), total_(total) {}

  int window() const { return window_; }
  int total() const { return total_; }
  int free() const { return total_ - fresh_ + static_cast<int>(freed_.size()); }
  int touched() const { return fresh_; }  // pages 0 .. touched() - 1 have been used
  int reusable() const { return static_cast<int>(freed_.size()); }
  /// Makes room so that the next `count` take() calls cannot throw.
  void prepare(int count);
  /// A page with one reference. Freed pages first, the latest first. Needs free() > 0 and prepare().
  int take() noexcept;
  void share(int page) noexcept {
    const auto at = static_cast<size_t>(page);
    if (references_[at]++ == kept_rows_[at]) --idle_;
  }
  void drop(int page) noexcept;
  bool shared(int page) const { return references_[static_cast<size_t>(page)] > 1; }

  /// One of the page's references is now a kept row's; and back.
  void keep(int page) noexcept;
  void unkeep(int page) noexcept;
  int kept() const { return kept_; }  // pages in any kept row
  int idle() const { return idle_; }  // pages in kept rows only

  std::vector<int> slots;              // kv slots whose keys and values lie in these pages
  size_t page_bytes = 0;               // native
  std::shared_ptr<PageMemory> memory;  // native

 private:
  int window_;
  int total_;
  int fresh_ = 0;
  std::vector<int> freed_;
  std::vector<uint32_t> references_;
  std::vector<uint32_t> kept_rows_;  // of the references, those of kept rows
  int kept_ = 0, idle_ = 0;
};

/// Where a kv slot's data lie.
struct KvPlace {
  KvFormat format;
  int group = 0;
  size_t offset = 0;  // native: bytes from the page's start to the slot's first head
  kernels::PageBlocks blocks;
  /// recent.h: near keys whose values are not coded. Native: they lie in a group that forgets the others.
  struct Recent {
    int keys = 0;
    int group = 0;
    size_t offset = 0;
    kernels::PageBlocks blocks = {};
  };
  std::optional<Recent> recent;
  // Reference kernels: [pages, kv_heads, 32, dim]; as many pages as were touched, grown by doubling.
  std::optional<array> keys, values;
  std::optional<array> plain;  // of slots with recent values: all of them as they are
};

struct StateStore::Impl {
  StateLayout layout;
  StoreOptions options;
  KernelMode mode;
  std::vector<PageGroup> groups;
  std::vector<KvPlace> places;  // per kv slot
  int pages_total = 0;

  Impl(StateLayout layout, const StoreOptions& options);
  void copy_page(PageGroup& group, int from, int to);
  void grow_pools(const PageGroup& group);
};

/// One recurrent slot of a row: its part of an array that rows of one step share.
struct RecurrentPart {
  std::optional<array> stack;  // [rows, ...shape]; none: zeros
  int index = 0;
};

struct RowState::Impl {
  StateStore::Impl* store = nullptr;
  int length = 0;
  int horizon = 0;
  std::vector<std::vector<int32_t>> tables;  // per group: page of tokens 32i .. 32i+31, -1 once let go
  std::vector<int> kept;                     // per group: first index not let go
  std::vector<RecurrentPart> recurrent;

  ~Impl();
  void reserve(int count);
  void advance(int count);
  void truncate(int to);
  /// Throws unless the windowed layers still hold what queries from `to` on can see.
  void check_rollback(int to) const;
};

}  // namespace mlxcel
