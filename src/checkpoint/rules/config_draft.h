// A configuration being put together from GGUF metadata, before it becomes config.json text.
// Owner: value. Thread: any one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace mlxcel {

class ConfigDraft {
 public:
  void set(const std::string& key, bool value) { values_[key] = value; }
  void set(const std::string& key, int value) { values_[key] = int64_t{value}; }
  void set(const std::string& key, int64_t value) { values_[key] = value; }
  void set(const std::string& key, double value) { values_[key] = value; }
  void set(const std::string& key, std::nullptr_t value) { values_[key] = value; }
  void set(const std::string& key, const char* value) { values_[key] = std::string(value); }
  void set(const std::string& key, std::vector<double> value) { values_[key] = std::move(value); }
  void set(const std::string& key, std::vector<int64_t> value) { values_[key] = std::move(value); }
  void set(const std::string& key, std::vector<std::string> value) { values_[key] = std::move(value); }
  void set(const std::string& key, const ConfigDraft& nested) { nested_[key] = nested; }
  void set(const std::string& key, std::vector<ConfigDraft> list) { lists_[key] = std::move(list); }
  void erase(const std::string& key) { values_.erase(key); }

  bool contains(const std::string& key) const { return values_.contains(key) || lists_.contains(key); }
  bool empty() const { return values_.empty() && nested_.empty() && lists_.empty(); }
  /// An integer set before; internal error where there is none.
  int64_t integer(const std::string& key) const;
  std::string json() const;

 private:
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<double>, std::vector<int64_t>,
                             std::vector<std::string>, std::nullptr_t>;
  std::map<std::string, Value> values_;
  std::map<std::string, ConfigDraft> nested_;
  std::map<std::string, std::vector<ConfigDraft>> lists_;
};

}  // namespace mlxcel
