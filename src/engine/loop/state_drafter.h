// Drafters that read what the target computed: for every token of a row they are shown its states, and keep
// them until the next draft. Owner: the loop. Thread: model thread.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/loop/drafter.h"
#include "models/dflash.h"
#include "models/mtp.h"
#include "models/side_drafter.h"

namespace mlxcel {

class StateDrafter : public NetworkDrafter {
 public:
  /// States of a row that wait for their next tokens; of a longer prompt only the last are used.
  static constexpr size_t kMostPending = 1024;

  void keep_only(std::span<const uint64_t> rows) override;
  bool wants_states() const override { return true; }
  void observe(uint64_t row, int position, int count, const float* states) override;

 protected:
  struct Row {
    RowState state;
    int base = 0;               // the token whose state `state` begins with
    int next = 0;               // the token whose state comes first below
    std::vector<float> states;  // [tokens, width], not fed yet
  };
  StateDrafter(const StateLayout& layout, int vocab, int width, const Options& options)
      : NetworkDrafter(layout, vocab, options), width_(static_cast<size_t>(width)) {}
  void forget(uint64_t row) override { rows_.erase(row); }
  /// The next `count` waiting states of a row, which no longer wait.
  std::vector<float> taken(Row& row, int count) const;
  /// The parts' states one after another, [tokens, width].
  array joined(const std::vector<Part>& parts) const;

  size_t width_;
  std::unordered_map<uint64_t, Row> rows_;
};

/// By multi-token prediction: a block of the checkpoint's own or one beside it, or an assistant that reads
/// the target's memory.
class MtpDrafter final : public StateDrafter {
 public:
  MtpDrafter(std::shared_ptr<const MtpHead> head, const Options& options);
  MtpDrafter(SideMtp side, const Options& options);
  int draft(std::span<DraftAsk> asks, int budget) override;
  bool wants_rows() const override { return assistant_ != nullptr; }
  void meet(uint64_t row, RowState& state) override { met_[row] = &state; }

 private:
  int draft_by_block(std::span<DraftAsk> asks, int budget);
  int draft_by_assistant(std::span<DraftAsk> asks, int budget);

  std::shared_ptr<const MtpHead> head_;  // one of the two
  std::shared_ptr<const AssistantHead> assistant_;
  std::unordered_map<uint64_t, RowState*> met_;  // the target's rows, until the draft at hand is made
};

/// By a block drafter: all tokens of a draft in one evaluation.
class DflashDrafter final : public StateDrafter {
 public:
  DflashDrafter(std::shared_ptr<const DflashHead> head, const Options& options);
  int draft(std::span<DraftAsk> asks, int budget) override;
  std::span<const int> wanted_layers() const override { return head_->form().layers; }
  double milliseconds_once() const override { return once_ms_; }

 private:
  int remember(std::span<DraftAsk> asks, int budget, std::vector<Part>& parts);
  void guess(std::vector<Part>& parts);

  std::shared_ptr<const DflashHead> head_;
  double once_ms_ = 0.0;
};

}  // namespace mlxcel
