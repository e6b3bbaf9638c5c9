// MLXCEL_FAIL_STEP, for tests only: `ROUTE:N` makes the N-th evaluation of every request from that route
// throw (`*` matches any route), `ROUTE:N:memory` makes it find no memory. Owner: the loop. Thread: model
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mlxcel {

class FailStep {
 public:
  /// Reads the environment; invalid_request for text of another form.
  static std::optional<FailStep> from_environment();
  static FailStep parse(std::string_view text);

  /// Throws where it hits.
  void strike(std::string_view route, uint64_t steps_done, uint64_t id) const;
  bool hits(std::string_view route, uint64_t steps_done) const {
    return (route_ == "*" || route_ == route) && steps_done + 1 == step_;
  }

 private:
  std::string route_;
  uint64_t step_ = 0;
  bool memory_ = false;
};

}  // namespace mlxcel
