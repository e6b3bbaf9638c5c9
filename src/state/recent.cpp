#include "state/recent.h"

#include <algorithm>

#include "base/error.h"
#include "state/pages.h"

namespace mlxcel {

// A row has few of these pages at a time, so they do not count against the store's budget.
void keep_recent(StateStore& store, const std::vector<int>& recent) {
  StateStore::Impl& impl = store.impl();
  const auto& specs = impl.layout.kv();
  if (recent.empty()) return;
  if (recent.size() != specs.size())
    fail(ErrorKind::internal, "recent values of {} slots, the layout has {}", recent.size(), specs.size());
  std::vector<PageGroup> fresh;
  for (size_t slot = 0; slot < specs.size(); ++slot) {
    KvPlace& place = impl.places[slot];
    if (recent[slot] == 0) continue;
    if (recent[slot] < 0 || !kernels::is_dense(place.format.keys) || kernels::is_dense(place.format.values) ||
        specs[slot].value_dim == 0)
      fail(ErrorKind::internal, "recent values of KV slot {}: {} keys", slot, recent[slot]);
    place.recent = KvPlace::Recent{.keys = recent[slot]};
    if (impl.mode == KernelMode::reference) continue;  // its pools hold both
    const auto like = std::find_if(fresh.begin(), fresh.end(),
                                   [&](const PageGroup& g) { return g.window() == recent[slot]; });
    place.recent->group = static_cast<int>(impl.groups.size()) + static_cast<int>(like - fresh.begin());
    if (like == fresh.end()) fresh.emplace_back(recent[slot], impl.pages_total);
    PageGroup& group = fresh[static_cast<size_t>(place.recent->group) - impl.groups.size()];
    place.recent->blocks =
        kernels::page_blocks({place.format.keys, place.format.keys, 0}, specs[slot].kv_heads,
                             specs[slot].key_dim, specs[slot].value_dim);
    place.recent->offset = group.page_bytes;
    group.page_bytes += place.recent->blocks.bytes();
  }
  for (PageGroup& group : fresh) {
    group.memory = std::make_shared<PageMemory>(group.page_bytes * static_cast<size_t>(impl.pages_total));
    impl.groups.push_back(std::move(group));
  }
}

}  // namespace mlxcel
