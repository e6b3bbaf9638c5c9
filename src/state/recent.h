// Slots whose near keys bring their values as they are, though their pages keep them in codes: pages of their
// own hold keys and values of each row's last tokens. Thread: model thread.
#pragma once

#include <vector>

#include "state/store.h"

namespace mlxcel {

/// `recent`: for each slot the number of keys that a query sees so (it is one of them); 0: none of a slot's,
/// and empty: of no slot's. Slots with values in codes and keys that are none; before the store's first row.
void keep_recent(StateStore& store, const std::vector<int>& recent);

}  // namespace mlxcel
