#include "checkpoint/rules/config_draft.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace mlxcel {

int64_t ConfigDraft::integer(const std::string& key) const {
  const auto found = values_.find(key);
  const auto* value = found == values_.end() ? nullptr : std::get_if<int64_t>(&found->second);
  if (!value) fail(ErrorKind::internal, "configuration draft: {} is not an integer", key);
  return *value;
}

std::string ConfigDraft::json() const {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : values_)
    std::visit([&, &name = key](const auto& held) { out[name] = held; }, value);
  for (const auto& [key, draft] : nested_) out[key] = nlohmann::json::parse(draft.json());
  for (const auto& [key, list] : lists_) {
    out[key] = nlohmann::json::array();
    for (const ConfigDraft& draft : list) out[key].push_back(nlohmann::json::parse(draft.json()));
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace mlxcel
