// A model for the engine's tests: logits follow from the last token and its position by a formula, so that
// any misplaced token, lost position or mixed-up row shows in the answer. Tests only.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/error.h"
#include "models/model.h"
#include "state/step.h"

namespace mlxcel::testing {

struct FakeControl {
  std::atomic<int> steps{0};
  std::atomic<int> largest_step{0};           // tokens
  std::atomic<int> largest_decoding_step{0};  // tokens of a step in which a row had decoded before
  std::atomic<int> most_rows{0};
  std::atomic<int> step_ms{0};            // how long a step takes
  std::atomic<int> token_us{0};           // and what each of its tokens adds
  std::atomic<bool> broken{false};        // every evaluation throws
  std::atomic<int> most_tokens{1 << 30};  // a step with more finds no memory
};

class FakeModel final : public Model {
 public:
  static constexpr int kVocab = 97;
  static constexpr int kNan = 90;    // a row whose last token is this gives NaN
  static constexpr int kThrow = 91;  // a step with this token anywhere throws
  static constexpr int kEos = 96;
  static constexpr int kToEos = 95;  // is followed by kEos

  explicit FakeModel(std::shared_ptr<FakeControl> control, bool encoder = false, int window = 512)
      : control_(std::move(control)) {
    info_.model_type = encoder ? "fake_encoder" : "fake";
    info_.vocab_size = kVocab;
    info_.hidden = 4;
    info_.layers = 1;
    info_.max_positions = window;
    info_.encoder = encoder;
    layout_.add_kv({.kv_heads = 1, .key_dim = 8, .value_dim = 8});
  }
  const ModelInfo& info() const override { return info_; }
  const StateLayout& layout() const override { return layout_; }

  /// The token that follows `token` at `position` (greedy).
  static int successor(int token, int position) {
    if (token == kToEos) return kEos;
    return (token * 31 + position * 17 + 5) % 89;
  }
  static float logit(int token, int position, int candidate) {
    if (candidate == successor(token, position)) return 8.0f;
    return static_cast<float>((candidate * 13 + token * 7 + position * 3) % 29) / 29.0f;
  }
  /// The answer to `prompt` by the formula.
  static std::vector<int32_t> answer(std::vector<int32_t> tokens, int count) {
    std::vector<int32_t> out;
    while (static_cast<int>(out.size()) < count) {
      const int next = successor(tokens.back(), static_cast<int>(tokens.size()) - 1);
      if (next == kEos) break;
      out.push_back(next);
      tokens.push_back(next);
    }
    return out;
  }

  array logits(Step& step) override {
    visit(step);
    std::vector<float> values;
    for (const StepRow& row : step.rows()) {
      const int first = row.wants == Wants::all ? 0 : row.wants == Wants::last ? row.count - 1 : row.count;
      for (int i = first; i < row.count; ++i) {
        const int token = step.token_ids()[static_cast<size_t>(row.first + i)];
        for (int c = 0; c < kVocab; ++c)
          values.push_back(token == kNan ? std::numeric_limits<float>::quiet_NaN()
                                         : logit(token, row.position + i, c));
      }
    }
    return array(values.begin(), {static_cast<int>(step.wanted().size()), kVocab}, mx::float32);
  }

  /// Encoders: [token, position, tokens of the row, 1].
  array hidden(Step& step) override {
    visit(step);
    std::vector<float> values;
    for (const StepRow& row : step.rows())
      for (int i = 0; i < row.count; ++i) {
        const int token = step.token_ids()[static_cast<size_t>(row.first + i)];
        const float nan = std::numeric_limits<float>::quiet_NaN();
        values.push_back(token == kNan ? nan : static_cast<float>(token));
        values.push_back(static_cast<float>(i));
        values.push_back(static_cast<float>(row.count));
        values.push_back(1.0f);
      }
    return array(values.begin(), {step.count(), 4}, mx::float32);
  }

 private:
  static void raise(std::atomic<int>& most, int value) {
    if (value > most) most = value;
  }
  void visit(Step& step) {
    ++control_->steps;
    raise(control_->largest_step, step.count());
    raise(control_->most_rows, static_cast<int>(step.rows().size()));
    for (const StepRow& row : step.rows())
      if (const auto asked = answered_.find(row.state);
          asked != answered_.end() && asked->second == row.position)
        raise(control_->largest_decoding_step, step.count());
    // A row that goes on with its prompt is a new one, perhaps where an earlier one lay.
    for (const StepRow& row : step.rows()) {
      if (row.wants == Wants::none)
        answered_.erase(row.state);
      else
        answered_[row.state] = row.position + row.count;
    }
    if (control_->step_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(control_->step_ms));
    if (control_->token_us > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(control_->token_us * step.count()));
    if (control_->broken) throw std::runtime_error("device lost");
    if (step.count() > control_->most_tokens) throw std::bad_alloc();
    for (int32_t token : step.token_ids())
      if (token == kThrow) fail(ErrorKind::internal, "token {} spoils the step", token);
  }

  std::shared_ptr<FakeControl> control_;
  std::map<const RowState*, int> answered_;  // the position of the token that a row's last logits gave
  ModelInfo info_;
  StateLayout layout_;
};

}  // namespace mlxcel::testing
