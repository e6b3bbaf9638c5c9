// The ragged step: the tokens of any number of rows, and what each row remembers (docs/adr/0001).
// Owner: the engine loop builds a Step for one model, the model's parts read it, then it is dropped.
// Thread: model thread. Failure: add() throws out_of_memory before any graph exists. A step that is dropped
// without commit() leaves its rows as they were: what was written lies behind their ends.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "state/store.h"
#include "tensor/tensor.h"

namespace mlxcel {

struct AdapterSet;  // nn/adapter.h

/// Which of a row's tokens give logits.
enum class Wants { none, last, all };

struct StepRow {
  RowState* state = nullptr;  // none for encoders, which keep nothing
  int first = 0;              // index of the row's first token in the step
  int count = 0;              // its tokens in this step
  Wants wants = Wants::last;
  int position = 0;  // position of the first token (= tokens already in `state`)
  int horizon = 0;   // tokens of the row's whole prompt: fixed by its first step, unless make_row() knew
  int second = 0;    // of a pair of texts: index in the row where the second begins; 0: one text
  const AdapterSet* adapters = nullptr;  // whose products are added to the row's
  int open = 0;  // its last so many tokens are a draft: they see each other and what the first of them sees,
                 // and the row forgets them again at commit()
  std::optional<array> before = {};  // [open, vocab]: what an earlier draft's logits were
};

class Step {
 public:
  Step();
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Adds a row of at least one token that follow what `state` holds; reserves its pages. `state` may be
  /// null; a state may stand in one row only. `adapters` must outlive the step; `second`: see StepRow.
  void add(RowState* state, std::span<const int32_t> tokens, Wants wants,
           const AdapterSet* adapters = nullptr, int second = 0);
  /// The last `open` tokens of the row added last are a draft (see StepRow).
  void open(int tokens, std::optional<array> before = std::nullopt);
  /// Call once after the last add(): makes the arrays below.
  void seal();

  const array& tokens() const { return *tokens_; }        // [T] int32
  const array& positions() const { return *positions_; }  // [T] int32
  std::span<const int32_t> token_ids() const { return ids_; }
  const std::vector<StepRow>& rows() const { return rows_; }
  int count() const { return static_cast<int>(ids_.size()); }
  /// [rows + 1]: where each row's tokens begin.
  const std::vector<int>& offsets() const { return offsets_; }
  /// Indices of the tokens whose logits are wanted, in step order; each row's are contiguous.
  const std::vector<int>& wanted() const { return wanted_; }

  /// Recurrent state of this step's rows stacked on axis 0, [rows, ...shape]; zeros for a new row.
  array recurrent(int slot);
  void set_recurrent(int slot, const array& value);

  /// Arrays that must be evaluated with the logits for the state to be complete (recurrent states and,
  /// under the reference kernels, KV pools).
  std::vector<array> pending() const;
  /// After evaluation: every row's state now holds the step's tokens.
  void commit();

  /// How attend() reaches a slot's pages; internal to this room.
  struct Pages;
  Pages& pages();

 private:
  std::vector<int32_t> ids_;
  std::vector<int32_t> position_ids_;
  std::vector<StepRow> rows_;
  std::vector<int> offsets_{0};
  std::vector<int> wanted_;
  std::optional<array> tokens_, positions_;
  std::vector<std::optional<array>> recurrent_;  // new values by slot
  std::unique_ptr<Pages> pages_;
};

}  // namespace mlxcel
