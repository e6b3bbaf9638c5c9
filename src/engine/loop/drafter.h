// Where drafts come from. The loop asks for what may follow its decoding rows, lets the target verify it, and
// throws away what the target did not draw: a drafter can make an answer come sooner, never make it another.
// Owner: the loop. Thread: model thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/model.h"
#include "sample/sampler.h"
#include "state/store.h"
#include "text/tokenizer.h"

namespace mlxcel {

struct DraftAsk {
  uint64_t row = 0;                      // whose
  std::span<const TokenId> tokens = {};  // prompt and answer so far
  int most = 0;                          // tokens wanted
  const Sampler* sampler = nullptr;      // by whose odds tokens are drawn; none: the likeliest are taken
  int64_t place = 0;                     // of the draft's first token, for its draws
  std::vector<TokenId> draft = {};       // what may follow; fewer, or none, where nothing is likely enough
  std::vector<Proposal> drawn = {};      // the same with their odds, where they were drawn
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Fills the asks' drafts, evaluating at most `budget` tokens; how many it evaluated.
  virtual int draft(std::span<DraftAsk> asks, int budget) = 0;
  /// Rows other than these have gone.
  virtual void keep_only(std::span<const uint64_t> rows) { (void)rows; }
  /// What one more token of every draft costs, in milliseconds; and what a draft costs however long it is.
  virtual double milliseconds() const { return 0.0; }
  virtual double milliseconds_once() const { return 0.0; }
  /// Whether it must see what the target computed for every token, prompts included.
  virtual bool wants_states() const { return false; }
  /// Of which layers (from 0, ascending); none: the last hidden states, behind the final norm.
  virtual std::span<const int> wanted_layers() const { return {}; }
  /// Whether it reads what the target remembers of a row: the row is then shown to it before each draft.
  virtual bool wants_rows() const { return false; }
  virtual void meet(uint64_t row, RowState& state) { (void)row, (void)state; }
  /// Those of a row's tokens from `position` on, [count, width].
  virtual void observe(uint64_t row, int position, int count, const float* states) {
    (void)row, (void)position, (void)count, (void)states;
  }
};

/// The most likely token joins the draft, if the target knows it and it is likely enough, or one that is
/// drawn by its odds; false when there is none, or when the draft is long enough.
bool propose(DraftAsk& ask, std::span<const float> logits, int target_vocab, float p_min);

/// N-grams of the row's own tokens.
class LookupDrafter final : public Drafter {
 public:
  int draft(std::span<DraftAsk> asks, int budget) override;
};

/// A drafter with a network and a memory of its own for every row.
class NetworkDrafter : public Drafter {
 public:
  struct Options {
    mx::Dtype kv_dtype = mx::float16;
    int context = 0;  // tokens of a row at most
    int rows = 1;
    int vocab = 0;       // of the target: tokens beyond it are not proposed
    float p_min = 0.0f;  // a token less likely than this ends a draft before it
  };
  double milliseconds() const override { return pass_ms_; }

 protected:
  /// A row's tokens in one evaluation.
  struct Part {
    DraftAsk* ask;
    RowState* state;
    std::vector<TokenId> tokens;
    Wants wants = Wants::last;
    std::vector<float> states = {};  // [tokens, width] that the network reads beside them
    const float* logits = nullptr;   // of the last token, until the next evaluation
    const float* out = nullptr;      // its state to go on with, likewise
  };
  NetworkDrafter(const StateLayout& layout, int vocab, const Options& options);
  /// Logits [wanted, vocab] of a sealed step, or any array that pulls it where none are wanted; and what the
  /// network hands on [tokens, width], if it does.
  struct Given {
    array result;
    std::optional<array> out = {};
  };
  using Network = std::function<Given(Step& step, const std::vector<Part>& parts)>;
  /// One step over these parts. Rows for which there is no room fall out and are forgotten.
  void evaluate(std::vector<Part>& parts, const Network& network);
  /// Proposes a token of each part and evaluates it (`next` has put it into the part), until none goes on;
  /// tokens evaluated.
  int go_on(std::vector<Part>& parts, const Network& network, const std::function<void(Part&)>& next);
  virtual void forget(uint64_t row) = 0;
  std::span<const float> logits_of(const Part& part) const {
    return {part.logits, static_cast<size_t>(vocab_)};
  }

  Options o_;
  StateStore store_;
  int vocab_;
  std::optional<array> logits_, out_;  // of the last evaluation
  double pass_ms_ = 0.0;
};

/// A smaller model over the same vocabulary. Rows draft together, greedily: whatever the target's
/// temperature, its most likely token is the likeliest to be drawn.
class ModelDrafter final : public NetworkDrafter {
 public:
  ModelDrafter(std::unique_ptr<Model> model, const Options& options);
  ~ModelDrafter() override;

  int draft(std::span<DraftAsk> asks, int budget) override;
  void keep_only(std::span<const uint64_t> rows) override;
  const ModelInfo& info() const { return model_->info(); }
  /// Rows held, for tests.
  size_t rows() const { return rows_.size(); }

 private:
  struct Row {
    RowState state;
    std::vector<TokenId> fed;                // what `state` holds
    std::optional<RecurrentSnapshot> clean;  // recurrent layouts: before the last draft
  };
  void forget(uint64_t row) override { rows_.erase(row); }
  Row& row_of(const DraftAsk& ask);
  void rewind(Row& row, std::span<const TokenId> tokens);

  std::unique_ptr<Model> model_;
  bool recurrent_;
  Network network_;
  std::unordered_map<uint64_t, Row> rows_;
};

}  // namespace mlxcel
