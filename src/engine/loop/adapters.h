// The adapters of an engine: which are loaded, their scales in force, and the set that a request gets when it
// is handed in. Rows hold what they use, so an adapter that is unloaded lives until its last row has ended.
// Owner: Engine's loop. Thread: any.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "nn/adapter.h"

namespace mlxcel {

class AdapterShelf {
 public:
  static constexpr size_t kMost = 256;  // loaded at once

  /// What a request is computed with: null for the bare model. `key` tells sets apart for the prompt cache.
  struct Chosen {
    std::shared_ptr<const AdapterSet> set;
    std::string key;
  };

  int add(const AdapterFiles& files, std::shared_ptr<const Adapter> adapter, float scale);
  /// not_found for an id that is not loaded.
  void remove(int id);
  /// Those not listed get 0. Ids that are not loaded are returned.
  std::vector<int> set_scales(const std::vector<AdapterScale>& scales);
  std::vector<AdapterInfo> list() const;
  /// With the scales in force, or those asked for (others 0); invalid_request for an unknown id.
  Chosen choose(const std::optional<std::vector<AdapterScale>>& wanted) const;

 private:
  struct Held {
    AdapterInfo info;
    uint64_t digest;
    std::shared_ptr<const Adapter> adapter;
  };
  mutable std::mutex mutex_;
  std::vector<Held> held_;
  int next_id_ = 0;
};

/// invalid_request unless finite.
void check_scale(const std::string& param, float scale);

}  // namespace mlxcel
