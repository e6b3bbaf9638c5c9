// Drafts by the checkpoint's own multi-token prediction. It must see what the target computed for every
// token, so the loop shows it each step's states. Owner: the loop. Thread: model thread.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/loop/drafter.h"
#include "models/mtp.h"

namespace mlxcel {

class MtpDrafter final : public Drafter {
 public:
  /// States of a row that wait for their next tokens; of a longer prompt only the last are used.
  static constexpr size_t kMostPending = 1024;

  MtpDrafter(std::shared_ptr<const MtpHead> head, const ModelDrafter::Options& options);
  int draft(std::span<DraftAsk> asks, int budget) override;
  void keep_only(std::span<const uint64_t> rows) override;
  double milliseconds() const override { return pass_ms_; }
  bool wants_states() const override { return true; }
  void observe(uint64_t row, int position, int count, const float* states) override;

 private:
  struct Row {
    RowState state;
    int base = 0;               // the token whose state `state` begins with
    int next = 0;               // the token whose state comes first below
    std::vector<float> states;  // [tokens, hidden], not fed yet
    std::vector<float> last;    // the state to go on with
  };
  struct Part;
  void evaluate(std::vector<Part>& parts);

  std::shared_ptr<const MtpHead> head_;
  ModelDrafter::Options o_;
  StateStore store_;
  std::unordered_map<uint64_t, Row> rows_;
  std::optional<array> logits_, out_;
  double pass_ms_ = 0.0;
};

}  // namespace mlxcel
