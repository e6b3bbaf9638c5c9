// The thoughts of answers, for conversations that come back without them: a template that shows them then
// writes what was generated, and the kept prefix is found. The least recently used go. Owner: the service.
// Thread: any.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace mlxcel {

class ReasoningEcho {
 public:
  static constexpr size_t kMostEntries = 4096;

  /// `bytes` of all thoughts and contents together, one thought an eighth of them at most; 0: off.
  explicit ReasoningEcho(size_t bytes) : most_(bytes) {}

  bool off() const { return most_ == 0; }
  /// `key`: who asked; nobody else's answers are found.
  void keep(const std::string& key, const std::string& content, const std::string& thought);
  /// Empty where that content was never generated with a thought.
  std::string find(const std::string& key, const std::string& content);
  size_t bytes() const;

 private:
  using Name = std::pair<std::string, std::string>;  // key, content
  struct Entry {
    std::string thought;
    std::list<Name>::iterator place;
  };
  static size_t size_of(const Name& name, const std::string& thought) {
    return name.first.size() + 2 * name.second.size() + thought.size();
  }
  void forget_last();

  const size_t most_;
  mutable std::mutex mutex_;
  std::map<Name, Entry> entries_;
  std::list<Name> order_;  // the latest used first
  size_t bytes_ = 0;
};

}  // namespace mlxcel
