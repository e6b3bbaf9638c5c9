// A block's work handed over as phases of one worker-pool program instead of a chain of graph nodes. Parts
// that can say theirs offer `bool phases(PhaseList&) const`: they read the list's value, leave theirs in its
// place and return true, or return false and are run as they are. What a part says must give the bits of its
// operator(), which is its twin (tests/arch compares every architecture).
// Owner: a skeleton, for one step. Thread: model thread. CPU, native kernels only.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/program.h"
#include "nn/heads.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "state/step.h"

namespace mlxcel {

/// Whether blocks are fused at all: native kernels, unless MLXCEL_FUSED=0 or set_fusing(false) (tests).
bool fusing();
void set_fusing(bool on);

class PhaseList {
 public:
  using Slot = kernels::Program::Slot;
  static constexpr Slot kNone = kernels::Program::kNone;

  explicit PhaseList(Step& step);

  Step& step() const { return step_; }

  /// The value that the next part reads: from a graph, or back to one.
  void start(const array& x);
  array take();
  Slot value() const { return value_; }
  void set_value(Slot slot) { value_ = slot; }

  /// What a part that ends a block adds to its result; set by the block.
  Slot residual() const { return residual_; }
  void set_residual(Slot slot) { residual_ = slot; }

  // Each reads the value and puts its own in place; false: it cannot be said here.
  bool lookup(const Embedding& table);
  bool add_lookup(const Embedding& table);  // of positions
  /// The norm goes into the product that follows.
  bool norm(const Norm& norm);
  bool linear(const Linear& linear, Slot residual = kNone, Activation activation = Activation::none,
              std::vector<int> rows = {});
  bool gated(const GatedLinear& linear, Activation activation);
  /// A product of the value beside it: the value, and a norm before it, stay. kNone: it cannot be said.
  Slot aside(const Linear& linear, Activation activation);
  /// The value's columns [from, from + heads * width): within ±clip where it is not 0, then each head through
  /// the norm and times weights [heads, width], where given.
  bool columns(int from, int heads, int width, float clip, const Norm* norm,
               const std::optional<array>& weights);
  /// value *= activation(by); `by` has as many columns, or one for each of equal parts.
  void multiply(Slot by, Activation activation = Activation::none);
  /// Work of a kind of its own; what it gives becomes the rows' recurrent states of these slots.
  std::vector<Slot> work(kernels::WorkForm form, std::vector<int> recurrent_slots = {});
  /// Between blocks: a program that takes and gives too many arrays ends, another goes on.
  void breathe();
  struct Attended {
    int slot;  // of the state's keys and values
    float scale, softcap;
    std::optional<array> sinks;
    Slot factors = kNone;  // [tokens, 1], of the queries
  };
  bool attend(const HeadPlan& plan, const Attended& options);

  /// Columns of a slot, where they lie; the slot must be a product's.
  Slot part(Slot slot, int from, int width) { return program_->part(slot, from, width); }
  /// value = each of its heads times its own matrix of the bank, `out_each` values apart.
  bool by_heads(const Linear& bank, int out_each);
  /// Heads of `from` go to `to`, rotated where there is a rotation.
  bool turn(Slot from, Slot to, kernels::Program::TurnForm form, const std::optional<Rope>& rope);
  /// value = the value's queries against latent keys.
  bool attend_latent(Slot keys, int slot, int heads, float scale);
  /// Values that follow from the step, [tokens, 1] f32: made once a program for each key.
  using FactorKey = std::array<float, 3>;
  Slot factors(const FactorKey& key, const std::function<array()>& make);
  /// value = base + scale * norm(value); without a norm the value itself.
  bool add(Slot base, const Norm* norm, float scale = 1.0f);
  /// value = norm(value), for what needs it settled.
  bool normed(const Norm& norm);

  /// Runs `say`, which may call the functions above; undone unless it returns true.
  template <class Say>
  bool whole(Slot residual, const Say& say) {
    const auto mark = program_->mark();
    const Slot value = value_;
    const auto pending = pending_;
    const auto angles = angles_;
    const auto factors = factors_;
    const auto states = states_.size();
    residual_ = residual;
    const bool said = say();
    residual_ = kNone;
    if (said) return true;
    program_->back_to(mark);
    value_ = value;
    pending_ = pending;
    angles_ = angles;
    factors_ = factors;
    states_.resize(states);
    return false;
  }

 private:
  Slot angles(const Rope& rope);
  void settle();  // a pending norm becomes an operation of its own

  Step& step_;
  std::shared_ptr<kernels::Program> program_;
  Slot value_ = kNone, residual_ = kNone;
  std::optional<kernels::NormForm> pending_;
  std::vector<std::pair<const void*, Slot>> angles_;  // of each rotation, once a program
  std::vector<std::pair<FactorKey, Slot>> factors_;
  std::vector<int> states_;  // recurrent slots of what the program gives
};

}  // namespace mlxcel
