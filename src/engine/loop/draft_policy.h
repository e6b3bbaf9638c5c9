// Whether drafts pay on this machine, found out once for a target and its drafter: the first answers are
// written in turns with drafts and without, the verdict is kept on disk and holds for later starts
// (spec/features.md 4). Owner: the loop. Thread: model thread; report() any.
#pragma once

#include <array>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "engine/stats.h"

namespace mlxcel {

class DraftPolicy {
 public:
  static constexpr int kSamples = 4;       // answers measured
  static constexpr int kTurn = 16;         // tokens in a row written one way
  static constexpr int kLeastTokens = 48;  // that an answer must have had each way to count
  static constexpr double kLeastGain = 1.02;

  /// What a verdict holds for.
  struct Key {
    std::string target, drafter, hardware;
    int block = 0;  // tokens of a verify block
  };
  /// No policy: drafts are made because they were asked for.
  DraftPolicy() = default;
  /// Reads a kept verdict; `directory` may be empty (nothing is kept). A file that cannot be read, or is of
  /// something else, is as none.
  DraftPolicy(std::filesystem::path directory, Key key);
  /// The same as the default, with what it is about.
  static DraftPolicy forced(Key key, std::string reason);

  /// Whether the next step may draft.
  bool drafts_now() const { return drafts_; }
  bool measuring() const { return measuring_; }
  /// What a step of one lone row cost, drafting included, and how many tokens came of it.
  void observe(int tokens, double ms);
  /// The answer that was measured has ended; false: it was not alone all the time, and does not count.
  void ended(bool counts);
  DraftPolicyReport report() const;

  DraftPolicy(DraftPolicy&& other) noexcept { *this = std::move(other); }
  DraftPolicy& operator=(DraftPolicy&& other) noexcept;

 private:
  struct Way {
    double ms = 0.0;
    int tokens = 0;
    double rate() const { return ms > 0.0 ? 1e3 * tokens / ms : 0.0; }
  };
  void settle();
  void keep() const;
  bool restore();
  std::filesystem::path file() const;

  std::filesystem::path directory_;
  Key key_;
  bool drafts_ = true, measuring_ = false;
  int in_turn_ = 0;
  std::array<Way, 2> now_ = {}, all_ = {};  // without, with
  int samples_ = 0;
  double gain_ = 0.0;  // settled: tokens a second with drafts over those without
  std::string state_ = "forced", reason_ = "asked_for";
  mutable std::mutex mutex_;  // of what report() reads
};

}  // namespace mlxcel
