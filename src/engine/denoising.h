// What a request asks of text diffusion otherwise than the model does. Owner: value. Thread: any.
#pragma once

#include <optional>
#include <string>

namespace mlxcel {

struct Denoising {
  std::optional<int> steps = {};             // most rounds of a block
  std::optional<float> threshold = {};       // how sure a token is that stays
  std::optional<std::string> sampler = {};   // entropy-bound, confidence, random
  std::optional<int> least = {}, most = {};  // tokens of a draft
  bool whole = false;                        // drafts are always the longest
  bool any() const { return steps || threshold || sampler || least || most || whole; }
  /// With what `usual` asks where this asks nothing; a threshold goes with its sampler.
  Denoising or_as(const Denoising& usual) const {
    Denoising out = *this;
    if (!out.steps) out.steps = usual.steps;
    if (!out.least) out.least = usual.least;
    if (!out.most) out.most = usual.most;
    if (!out.sampler && !out.threshold) {
      out.sampler = usual.sampler;
      out.threshold = usual.threshold;
    }
    out.whole = out.whole || usual.whole;
    return out;
  }
};

}  // namespace mlxcel
