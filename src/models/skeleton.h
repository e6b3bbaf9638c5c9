// What every network shape has in common: it turns a step into hidden states, and perhaps into logits.
// Owner: the loaded Model. Thread: model thread.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "nn/linear.h"
#include "state/step.h"
#include "tensor/tensor.h"

namespace mlxcel {

struct NetworkFacts {
  int vocab = 0;
  int hidden = 0;
  int layers = 0;
  int max_positions = 0;  // 0: unbounded or not named
  bool encoder = false;
};

class Skeleton {
 public:
  virtual ~Skeleton() = default;
  virtual NetworkFacts facts() const = 0;
  virtual array hidden(Step& step) const = 0;  // [tokens, hidden], after the final norm
  virtual array logits(Step& step) const = 0;  // [wanted, vocab]
};

/// A part that looks across tokens (attention, a recurrence): y = part(x) (+ residual). Any part with
/// `array operator()(const array& x, Step&) const`; one that also takes a residual adds it itself.
class Mixer {
 public:
  template <class Part>
    requires(!std::same_as<std::remove_cvref_t<Part>, Mixer>)
  Mixer(Part part)  // NOLINT(google-explicit-constructor)
      : call_([part = std::move(part)](const array& x, Step& step, const Residual& residual) {
          if constexpr (std::is_invocable_v<const Part&, const array&, Step&, const Residual&>) {
            return part(x, step, residual);
          } else {
            const array y = part(x, step);
            return residual ? mx::add(*residual, y) : y;
          }
        }) {}
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const {
    return call_(x, step, residual);
  }

 private:
  std::function<array(const array&, Step&, const Residual&)> call_;
};

/// A part that sees each token alone (MLP, experts): y = part(x) (+ residual).
class Ffn {
 public:
  template <class Part>
    requires(!std::same_as<std::remove_cvref_t<Part>, Ffn>)
  Ffn(Part part)  // NOLINT(google-explicit-constructor)
      : call_([part = std::move(part)](const array& x, const Residual& residual) {
          if constexpr (std::is_invocable_v<const Part&, const array&, const Residual&>) {
            return part(x, residual);
          } else {
            const array y = part(x);
            return residual ? mx::add(*residual, y) : y;
          }
        }) {}
  array operator()(const array& x, const Residual& residual = std::nullopt) const {
    return call_(x, residual);
  }

 private:
  std::function<array(const array&, const Residual&)> call_;
};

/// One layer: h [tokens, hidden] to h.
using Block = std::function<array(const array& h, Step& step)>;

}  // namespace mlxcel
