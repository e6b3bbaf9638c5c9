#include "state/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/memory.h"

namespace mlxcel {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

PageMemory::PageMemory(size_t bytes) {
  if (bytes == 0) return;
  mapped_ = bytes + kHugePage;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
  flags |= MAP_NORESERVE;
#endif
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    fail(ErrorKind::out_of_memory, "KV pages: no address space for {}: {}", format_bytes(bytes),
         std::strerror(errno));
  }
  const auto start = reinterpret_cast<uintptr_t>(mapping_);
  data_ = reinterpret_cast<std::byte*>((start + kHugePage - 1) / kHugePage * kHugePage);
#ifdef MADV_HUGEPAGE
  // Refusal costs speed only (4 KiB pages), so it is no error.
  madvise(data_, bytes, MADV_HUGEPAGE);
#endif
}

PageMemory::~PageMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

void PageGroup::prepare(int count) {
  const int fresh = std::max(0, count - static_cast<int>(freed_.size()));
  const size_t wanted = static_cast<size_t>(fresh_ + fresh);
  if (references_.size() < wanted) references_.resize(std::max(wanted, references_.size() * 2));
  kept_rows_.resize(references_.size());
  // drop() must not throw either: every page that exists may come back.
  freed_.reserve(references_.size());
}

int PageGroup::take() noexcept {
  int page;
  if (freed_.empty()) {
    page = fresh_++;
  } else {
    page = freed_.back();
    freed_.pop_back();
  }
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void PageGroup::drop(int page) noexcept {
  const auto at = static_cast<size_t>(page);
  if (--references_[at] == 0)
    freed_.push_back(page);
  else if (references_[at] == kept_rows_[at])
    ++idle_;
}

void PageGroup::keep(int page) noexcept {
  const auto at = static_cast<size_t>(page);
  if (kept_rows_[at]++ == 0) ++kept_;
  if (kept_rows_[at] == references_[at]) ++idle_;
}

void PageGroup::unkeep(int page) noexcept {
  const auto at = static_cast<size_t>(page);
  if (kept_rows_[at] == references_[at]) --idle_;
  if (--kept_rows_[at] == 0) --kept_;
}

RowState::Impl::~Impl() {
  for (size_t g = 0; g < tables.size(); ++g)
    for (const int32_t page : tables[g])
      if (page >= 0) store->groups[g].drop(page);
}

void RowState::Impl::reserve(int count) {
  if (count < 0) fail(ErrorKind::internal, "reserve: {} tokens", count);
  const auto end = static_cast<size_t>(length) + static_cast<size_t>(count);
  const auto pages = (end + kPageTokens - 1) / kPageTokens;
  const auto partial = static_cast<size_t>(length / kPageTokens);
  struct Need {
    bool copy = false;
    int fresh = 0;
  };
  std::vector<Need> needs(tables.size());
  for (size_t g = 0; g < tables.size(); ++g) {
    auto& table = tables[g];
    PageGroup& group = store->groups[g];
    needs[g].fresh = static_cast<int>(pages > table.size() ? pages - table.size() : 0);
    needs[g].copy = count > 0 && length % kPageTokens != 0 && group.shared(table[partial]);
    const int wanted = needs[g].fresh + (needs[g].copy ? 1 : 0);
    if (wanted > group.free())
      fail(ErrorKind::out_of_memory,
           "KV pages: {} more tokens after {} need {} pages of {} tokens, {} of {} are free", count, length,
           wanted, kPageTokens, group.free(), group.total());
    group.prepare(wanted);
    table.reserve(std::max(pages, table.size()));
  }
  // Below only the reference kernels' graph building could throw, and the row stays whole.
  for (size_t g = 0; g < tables.size(); ++g) {
    auto& table = tables[g];
    PageGroup& group = store->groups[g];
    for (int i = 0; i < needs[g].fresh; ++i) table.push_back(group.take());
    const int copy = needs[g].copy ? group.take() : -1;
    try {
      store->grow_pools(group);
      if (copy >= 0) store->copy_page(group, table[partial], copy);
    } catch (...) {
      if (copy >= 0) group.drop(copy);
      throw;
    }
    if (copy >= 0) {
      group.drop(table[partial]);
      table[partial] = copy;
    }
  }
}

void RowState::Impl::advance(int count) {
  const auto end = static_cast<size_t>(length) + static_cast<size_t>(count);
  for (const auto& table : tables)
    if (count < 0 || end > table.size() * kPageTokens)
      fail(ErrorKind::internal, "advance: {} tokens after {}, reserved are {}", count, length,
           table.size() * kPageTokens);
  length = static_cast<int>(end);
  for (size_t g = 0; g < tables.size(); ++g) {
    PageGroup& group = store->groups[g];
    if (group.window() == 0) continue;
    // The next query, or one after a truncation, sees no key before this.
    const int first = length - kRollbackTokens - group.window() + 1;
    for (; (kept[g] + 1) * kPageTokens <= first; ++kept[g]) {
      group.drop(tables[g][static_cast<size_t>(kept[g])]);
      tables[g][static_cast<size_t>(kept[g])] = -1;
    }
  }
}

void RowState::Impl::check_rollback(int to) const {
  for (size_t g = 0; g < tables.size(); ++g) {
    const int window = store->groups[g].window();
    if (to > 0 && window > 0 && std::max(0, to - window + 1) < kept[g] * kPageTokens)
      fail(ErrorKind::unsupported,
           "truncate to {} tokens: layers with a window of {} have let go of the first {}", to, window,
           kept[g] * kPageTokens);
  }
}

void RowState::Impl::truncate(int to) {
  if (to < 0 || to > length) fail(ErrorKind::internal, "truncate: to {} of {} tokens", to, length);
  check_rollback(to);
  const auto pages = (static_cast<size_t>(to) + kPageTokens - 1) / kPageTokens;
  for (size_t g = 0; g < tables.size(); ++g) {
    auto& table = tables[g];
    for (; table.size() > pages; table.pop_back())
      if (table.back() >= 0) store->groups[g].drop(table.back());
    kept[g] = std::min(kept[g], static_cast<int>(table.size()));
  }
  length = to;
}

}  // namespace mlxcel
