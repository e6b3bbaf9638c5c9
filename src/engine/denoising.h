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
};

}  // namespace mlxcel
