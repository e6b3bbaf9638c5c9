// What every network shape has in common: it turns a step into hidden states, and perhaps into logits.
// Owner: the loaded Model. Thread: model thread.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

#include "nn/linear.h"
#include "nn/phases.h"
#include "state/step.h"
#include "tensor/tensor.h"

namespace mlxcel {

/// Models that fill in blocks of masked tokens, which see each other, in place of one token after another.
struct Diffusion {
  int block = 0;           // tokens of a block; 0: the model writes one token after another
  int mask = -1;           // the token that stands for one not known yet
  float threshold = 0.9f;  // tokens surer than this are taken at once
  int steps = 0;           // most rounds of a block; 0: one for each of its tokens
  /// Drafts of random tokens behind what is known, drawn whole in every round until they settle, each round
  /// with the logits of the one before; then no token is a mask and what is known sees earlier tokens only.
  bool redraws = false;
  enum class Sampler { entropy_bound, confidence, random };  // which of the drawn tokens stay in a round:
  Sampler sampler =
      Sampler::confidence;  // the surest whose entropies add up to no more; by threshold; a share
  float entropy = 0.1f;
  int least = 64;                        // tokens of the shortest draft; the longest has `block`
  float hottest = 0.8f, coolest = 0.4f;  // temperature of the first round, and what it falls to
  int stable = 1;                        // rounds that must agree, …
  float confident = 0.005f;  // … and the mean entropy that must be left, for a draft to be done early
};

struct NetworkFacts {
  int vocab = 0;
  int hidden = 0;
  int layers = 0;
  int max_positions = 0;  // 0: unbounded or not named
  bool encoder = false;
  Diffusion diffusion = {};
  int labels = 0;  // of a classifier over whole rows (rerankers); 0: none
};

class Skeleton {
 public:
  virtual ~Skeleton() = default;
  virtual NetworkFacts facts() const = 0;
  virtual array hidden(Step& step) const = 0;  // [tokens, hidden], after the final norm
  virtual array logits(Step& step) const = 0;  // [wanted, vocab]
  /// Both of one evaluation.
  virtual std::pair<array, array> logits_and_hidden(Step& step) const;
  /// Logits, and what these layers (counted from 0, ascending) give, side by side: [tokens, layers * hidden].
  virtual std::pair<array, array> logits_and_layers(Step& step, std::span<const int> layers) const;
  /// What drafters borrow; none where there is no such thing.
  virtual const Embedding* table() const { return nullptr; }
  virtual const Linear* head() const { return nullptr; }
  virtual array scores(Step& step) const;  // [rows, labels]; unsupported where there is no classifier
};

/// A part's work as phases, if it offers them.
template <class Part>
std::function<bool(PhaseList&)> phases_of(const std::shared_ptr<const Part>& part) {
  if constexpr (requires(PhaseList& list) {
                  { part->phases(list) } -> std::same_as<bool>;
                })
    return [part](PhaseList& list) { return part->phases(list); };
  else
    return {};
}

/// A part that looks across tokens (attention, a recurrence): y = part(x) (+ residual). Any part with
/// `array operator()(const array& x, Step&) const`; one that also takes a residual adds it itself. Where
/// layers have one part only it may be a feed-forward, which needs no step.
class Mixer {
 public:
  template <class Part>
    requires(!std::same_as<std::remove_cvref_t<Part>, Mixer>)
  Mixer(Part value) {  // NOLINT(google-explicit-constructor)
    const auto part = std::make_shared<const Part>(std::move(value));
    phases_ = phases_of(part);
    call_ = [part](const array& x, Step& step, const Residual& residual) {
      if constexpr (std::is_invocable_v<const Part&, const array&, Step&, const Residual&>) {
        return (*part)(x, step, residual);
      } else if constexpr (std::is_invocable_v<const Part&, const array&, Step&>) {
        const array y = (*part)(x, step);
        return residual ? mx::add(*residual, y) : y;
      } else {
        return (*part)(x, residual);
      }
    };
  }
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const {
    return call_(x, step, residual);
  }
  bool phases(PhaseList& list) const { return phases_ && phases_(list); }

 private:
  std::function<array(const array&, Step&, const Residual&)> call_;
  std::function<bool(PhaseList&)> phases_;
};

/// A part that sees each token alone (MLP, experts): y = part(x) (+ residual).
class Ffn {
 public:
  template <class Part>
    requires(!std::same_as<std::remove_cvref_t<Part>, Ffn>)
  Ffn(Part value) {  // NOLINT(google-explicit-constructor)
    const auto part = std::make_shared<const Part>(std::move(value));
    phases_ = phases_of(part);
    call_ = [part](const array& x, const Residual& residual) {
      if constexpr (std::is_invocable_v<const Part&, const array&, const Residual&>) {
        return (*part)(x, residual);
      } else {
        const array y = (*part)(x);
        return residual ? mx::add(*residual, y) : y;
      }
    };
  }
  /// One of several parts, chosen by a layer's number.
  template <class... Parts>
  Ffn(std::variant<Parts...> one)  // NOLINT(google-explicit-constructor)
      : Ffn(std::visit([](auto part) { return Ffn(std::move(part)); }, std::move(one))) {}
  array operator()(const array& x, const Residual& residual = std::nullopt) const {
    return call_(x, residual);
  }
  bool phases(PhaseList& list) const { return phases_ && phases_(list); }

 private:
  std::function<array(const array&, const Residual&)> call_;
  std::function<bool(PhaseList&)> phases_;
};

/// One layer: h [tokens, hidden] to h. Any callable `array(const array& h, Step&)`; one that also has
/// `void extend(PhaseList&) const` turns the list's value into its own instead.
class Block {
 public:
  template <class Layer>
    requires(!std::same_as<std::remove_cvref_t<Layer>, Block>)
  Block(Layer value) {  // NOLINT(google-explicit-constructor)
    const auto layer = std::make_shared<const Layer>(std::move(value));
    call_ = [layer](const array& h, Step& step) { return (*layer)(h, step); };
    if constexpr (requires(PhaseList& list) { layer->extend(list); })
      extend_ = [layer](PhaseList& list) { layer->extend(list); };
  }
  array operator()(const array& h, Step& step) const { return call_(h, step); }
  void extend(PhaseList& list) const {
    if (extend_) return extend_(list);
    list.start(call_(list.take(), list.step()));
  }

 private:
  std::function<array(const array&, Step&)> call_;
  std::function<void(PhaseList&)> extend_;
};

}  // namespace mlxcel
