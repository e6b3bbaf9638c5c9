// A block of a text-diffusion answer: masks at first, then, round by round, the tokens that the model is
// surest of. Owner: its sequence. Thread: model thread; plain memory. Reference: LLaDA-2 (2025), block
// diffusion with a threshold of confidence.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "models/skeleton.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

namespace mlxcel {

class Canvas {
 public:
  explicit Canvas(const Diffusion& model) : model_(model) {}

  bool empty() const { return places_.empty(); }
  /// Masks for the `open` last tokens of a block.
  void begin(int open) {
    places_.assign(static_cast<size_t>(open), std::nullopt);
    round_ = 0;
  }
  /// What was drawn has become text: the next round begins with what is left of the block.
  void clear() { places_.clear(); }
  int size() const { return static_cast<int>(places_.size()); }
  bool known(int place) const { return places_[static_cast<size_t>(place)].has_value(); }
  bool done() const {
    return std::all_of(places_.begin(), places_.end(), [](const auto& place) { return place.has_value(); });
  }
  /// What the model reads.
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> list;
    for (const auto& place : places_) list.push_back(place ? place->token : model_.mask);
    return list;
  }

  struct Offer {
    int place = 0;
    Draw draw;
    float sure = 0.0f;  // the draw's probability
  };
  /// Takes the offers that are surer than the threshold; where they are fewer than this round's share of the
  /// block, that many of the surest (earlier ones first where they are equally sure).
  void settle(std::vector<Offer> offers) {
    const auto surer = [](const Offer& a, const Offer& b) { return a.sure > b.sure; };
    std::stable_sort(offers.begin(), offers.end(), surer);
    const int least = share();
    ++round_;
    // The last round leaves nothing open.
    const size_t taken = round_ >= rounds() ? offers.size() : static_cast<size_t>(least);
    for (size_t i = 0; i < offers.size(); ++i)
      if (i < taken || is_sure(offers[i].sure))
        places_[static_cast<size_t>(offers[i].place)] = std::move(offers[i].draw);
  }

  /// How many tokens this round takes at least, however unsure.
  int share() const { return model_.block / rounds() + (round_ < model_.block % rounds() ? 1 : 0); }
  bool is_sure(float probability) const { return probability > model_.threshold; }

  /// The finished block; the canvas is empty again.
  std::vector<Draw> take() {
    std::vector<Draw> list;
    for (auto& place : places_) list.push_back(std::move(*place));
    places_.clear();
    return list;
  }

 private:
  int rounds() const { return model_.steps > 0 ? model_.steps : model_.block; }

  Diffusion model_;
  std::vector<std::optional<Draw>> places_;
  int round_ = 0;
};

}  // namespace mlxcel
