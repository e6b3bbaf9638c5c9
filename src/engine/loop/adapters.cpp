#include "engine/loop/adapters.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace mlxcel {

void check_scale(const std::string& param, float scale) {
  if (!std::isfinite(scale)) fail_param(param, "{}: expected a finite scale", param);
}

int AdapterShelf::add(const AdapterFiles& files, std::shared_ptr<const Adapter> adapter, float scale) {
  check_scale("scale", scale);
  const std::lock_guard lock(mutex_);
  if (held_.size() >= kMost)
    fail(ErrorKind::out_of_memory, "{} adapters are loaded: unload one first", held_.size());
  AdapterInfo info{.id = next_id_++,
                   .path = files.path().string(),
                   .scale = scale,
                   .format = files.format(),
                   .rank = files.rank(),
                   .bytes = adapter->bytes()};
  held_.push_back({std::move(info), files.digest(), std::move(adapter)});
  return held_.back().info.id;
}

void AdapterShelf::remove(int id) {
  const std::lock_guard lock(mutex_);
  if (std::erase_if(held_, [&](const Held& h) { return h.info.id == id; }) == 0)
    fail(ErrorKind::not_found, "adapter {} is not loaded", id);
}

std::vector<int> AdapterShelf::set_scales(const std::vector<AdapterScale>& scales) {
  for (const AdapterScale& one : scales) check_scale("scale", one.scale);
  std::vector<int> unknown;
  const std::lock_guard lock(mutex_);
  for (Held& held : held_) held.info.scale = 0.0f;
  for (const AdapterScale& one : scales) {
    const auto held =
        std::find_if(held_.begin(), held_.end(), [&](const Held& h) { return h.info.id == one.id; });
    if (held == held_.end())
      unknown.push_back(one.id);
    else
      held->info.scale = one.scale;
  }
  return unknown;
}

std::vector<AdapterInfo> AdapterShelf::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterInfo> all;
  for (const Held& held : held_) all.push_back(held.info);
  return all;
}

AdapterShelf::Chosen AdapterShelf::choose(const std::optional<std::vector<AdapterScale>>& wanted) const {
  const std::lock_guard lock(mutex_);
  std::map<int, float> scales;
  if (wanted) {
    for (const AdapterScale& one : *wanted) {
      check_scale("lora", one.scale);
      if (std::none_of(held_.begin(), held_.end(), [&](const Held& h) { return h.info.id == one.id; }))
        fail_param("lora", "lora: adapter {} is not loaded", one.id);
      scales[one.id] = one.scale;
    }
  } else {
    for (const Held& held : held_) scales[held.info.id] = held.info.scale;
  }
  auto set = std::make_shared<AdapterSet>();
  Chosen chosen;
  for (const Held& held : held_) {  // in the order of their ids
    const auto scale = scales.find(held.info.id);
    if (scale == scales.end() || scale->second == 0.0f) continue;
    set->uses.push_back({held.adapter, scale->second});
    chosen.key += fmt::format("|{:016x}*{:a}", held.digest, scale->second);
  }
  if (!set->uses.empty()) chosen.set = std::move(set);
  return chosen;
}

}  // namespace mlxcel
