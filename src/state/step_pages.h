// A step's way to its rows' pages, made once per page group and shared by the layers of the group.
// Internal to this room. Thread: model thread.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "state/pages.h"
#include "state/step.h"

namespace mlxcel {

struct Step::Pages {
  StateStore::Impl* store = nullptr;
  /// Native: per group, the rows and their tables.
  std::vector<std::shared_ptr<const kernels::AttentionRows>> rows;
  /// Reference: per group, the page and the place in it of every token of the step, [tokens] int32.
  std::vector<std::optional<std::pair<array, array>>> places;
  /// Reference: slots whose pools this step has replaced, and the pools that it put there.
  struct Written {
    int slot;
    array keys;
    std::optional<array> values;
    std::optional<array> plain;
  };
  std::vector<Written> written;

  const std::shared_ptr<const kernels::AttentionRows>& rows_of(const Step& step, int group);
  const std::pair<array, array>& places_of(const Step& step, int group);

  /// Native: bits of the keys that lie `recent` places or more behind a query, [tokens, 1, pages] uint32.
  const array& old_keys(const Step& step, int recent);
  std::vector<std::pair<int, array>> old;
};

}  // namespace mlxcel
