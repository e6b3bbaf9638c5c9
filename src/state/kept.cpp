#include "state/kept.h"

#include <algorithm>

#include "state/pages.h"

namespace mlxcel {
namespace {

template <class Act>
void each_page(RowState& row, Act&& act) {
  RowState::Impl& impl = row.impl();
  for (size_t g = 0; g < impl.tables.size(); ++g)
    for (const int32_t page : impl.tables[g])
      if (page >= 0) act(impl.store->groups[g], page);
}

}  // namespace

KeptRow::KeptRow(RowState row) : row_(std::move(row)) {
  row_.impl().truncate(row_.length());  // pages reserved behind the end go back
  if (!row_.impl().recurrent.empty()) {
    const RecurrentSnapshot own = row_.snapshot();
    recurrent_bytes_ = own.bytes();
    row_.restore(own);
  }
  each_page(row_, [](PageGroup& group, int page) { group.keep(page); });
}

KeptRow::~KeptRow() {
  each_page(row_, [](PageGroup& group, int page) { group.unkeep(page); });
}

int KeptRow::usable(int length) const {
  length = std::min(length, row_.length());
  RowState::Impl& impl = row_.impl();
  if (length <= 0) return 0;
  if (length == row_.length()) return length;
  if (!impl.recurrent.empty()) return 0;
  for (size_t g = 0; g < impl.tables.size(); ++g) {
    const int window = impl.store->groups[g].window();
    if (window > 0 && std::max(0, length - window + 1) < impl.kept[g] * kPageTokens) return 0;
  }
  return length;
}

RowState KeptRow::fork(int length) {
  RowState row = row_.fork();
  if (length < row.length()) row.truncate(length);
  return row;
}

size_t kept_page_bytes(StateStore& store) {
  size_t bytes = 0;
  for (const PageGroup& group : store.impl().groups)
    bytes += static_cast<size_t>(group.kept()) * group.page_bytes;
  return bytes;
}

size_t fresh_bytes(StateStore& store, int pages) {
  size_t bytes = 0;
  for (const PageGroup& group : store.impl().groups)
    bytes += static_cast<size_t>(std::max(0, pages - group.reusable())) * group.page_bytes;
  return bytes;
}

int available_pages(StateStore& store) {
  int pages = store.pages_total();
  for (const PageGroup& group : store.impl().groups) pages = std::min(pages, group.free() + group.idle());
  return pages;
}

}  // namespace mlxcel
