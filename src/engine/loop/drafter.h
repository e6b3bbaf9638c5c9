// Where drafts come from. The loop asks for what may follow its decoding rows, lets the target verify it, and
// throws away what the target did not draw: a drafter can make an answer come sooner, never make it another.
// Owner: the loop. Thread: model thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/model.h"
#include "state/store.h"
#include "text/tokenizer.h"

namespace mlxcel {

struct DraftAsk {
  uint64_t row = 0;                      // whose
  std::span<const TokenId> tokens = {};  // prompt and answer so far
  int most = 0;                          // tokens wanted
  std::vector<TokenId> draft = {};       // what may follow; fewer, or none, where nothing is likely enough
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Fills the asks' drafts, evaluating at most `budget` tokens; how many it evaluated.
  virtual int draft(std::span<DraftAsk> asks, int budget) = 0;
  /// Rows other than these have gone.
  virtual void keep_only(std::span<const uint64_t> rows) { (void)rows; }
  /// What one more token of every draft costs, in milliseconds.
  virtual double milliseconds() const { return 0.0; }
  /// Whether it must see the target's last hidden states of every token, prompts included.
  virtual bool wants_states() const { return false; }
  /// Those of a row's tokens from `position` on, [count, hidden].
  virtual void observe(uint64_t row, int position, int count, const float* states) {
    (void)row, (void)position, (void)count, (void)states;
  }
};

/// The most likely token joins the draft, if the target knows it and it is likely enough; false when there is
/// none, or when the draft is long enough.
bool propose(DraftAsk& ask, std::span<const float> logits, int target_vocab, float p_min);

/// N-grams of the row's own tokens.
class LookupDrafter final : public Drafter {
 public:
  int draft(std::span<DraftAsk> asks, int budget) override;
};

/// A smaller model over the same vocabulary, its own memory beside the target's. Rows draft together,
/// greedily: whatever the target's temperature, its most likely token is the likeliest to be drawn.
class ModelDrafter final : public Drafter {
 public:
  struct Options {
    mx::Dtype kv_dtype = mx::float16;
    int context = 0;  // tokens of a row at most
    int rows = 1;
    int vocab = 0;       // of the target: tokens beyond it are not proposed
    float p_min = 0.0f;  // a token less likely than this ends a draft before it
  };
  ModelDrafter(std::unique_ptr<Model> model, const Options& options);
  ~ModelDrafter() override;

  int draft(std::span<DraftAsk> asks, int budget) override;
  void keep_only(std::span<const uint64_t> rows) override;
  double milliseconds() const override { return pass_ms_; }
  const ModelInfo& info() const { return model_->info(); }
  /// Rows held, for tests.
  size_t rows() const { return rows_.size(); }

 private:
  struct Row {
    RowState state;
    std::vector<TokenId> fed;                // what `state` holds
    std::optional<RecurrentSnapshot> clean;  // recurrent layouts: before the last draft
  };
  struct Part;
  Row& row_of(const DraftAsk& ask);
  void rewind(Row& row, std::span<const TokenId> tokens);
  void evaluate(std::vector<Part>& parts);

  std::unique_ptr<Model> model_;
  Options o_;
  StateStore store_;
  bool recurrent_;
  std::unordered_map<uint64_t, Row> rows_;
  std::optional<array> logits_;  // of the last evaluation
  double pass_ms_ = 0.0;
};

}  // namespace mlxcel
