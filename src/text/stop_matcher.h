// Finds stop strings in streamed text, across pieces; text that may be the beginning of one is held back.
// Owner: one per sequence. Thread: any one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mlxcel {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);
  struct Result {
    std::string text;      // safe to send
    bool stopped = false;  // a stop string was found; nothing after it is sent
    std::string stop;      // which one
  };
  Result push(std::string_view piece);
  /// The end of the stream: what was held back.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace mlxcel
