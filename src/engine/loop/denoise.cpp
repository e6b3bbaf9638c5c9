// Text diffusion in the loop: what a row with a canvas brings to a step, and what comes of it. Blocks of
// tokens see each other, so a block's keys and values are kept only once all of it is known.
#include <algorithm>
#include <cmath>

#include "engine/loop/loop.h"

namespace mlxcel {
namespace {

/// The probability of `token` under these logits.
float certainty(std::span<const float> logits, TokenId token) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - top));
  return static_cast<float>(std::exp(static_cast<double>(logits[static_cast<size_t>(token)] - top)) / sum);
}

}  // namespace

// A diffusion model answers plain requests only.
void Loop::begin_canvas(Sequence& s) const {
  if (info_.diffusion.block == 0) return;
  if (s.request.grammar.grammar)
    fail_param("response_format", "{} fills in blocks of tokens together: their form cannot be enforced",
               info_.model_type);
  if (s.request.prompt_logprobs)
    fail_param("prompt_logprobs", "{} fills in blocks of tokens together: prompts have no log-probabilities",
               info_.model_type);
  s.canvas.emplace(info_.diffusion);
  s.request.group = 0;             // every choice evaluates its prompt
  s.request.cache_prompt = false;  // what lies behind a block's middle hangs on its end
}

// Whole blocks of what is known, or all that is known and the canvas behind it.
Piece Loop::canvas_piece(Sequence& s, int room) const {
  const int block = info_.diffusion.block, size = static_cast<int>(s.tokens.size());
  const int pending = size / block * block - s.held();
  if (pending > block || s.limit == 0) {
    const int most = std::max(room / block, 1) * block;
    return {&s, s.limit == 0 && pending <= most ? s.remaining() : std::min(pending, most), Wants::none};
  }
  if (s.canvas->empty()) s.canvas->begin(block - size % block);
  auto open = s.canvas->tokens();
  return {&s, s.remaining() + static_cast<int>(open.size()), Wants::all, std::move(open)};
}

void Loop::deliver_canvas(Sequence& s, const Piece& piece, const float* logits, int rows) {
  const int open = static_cast<int>(piece.draft.size()), block = info_.diffusion.block;
  const int known = s.held() - open;
  if (s.limit == 0 && known == static_cast<int>(s.tokens.size())) {
    s.evaluated = known;
    finish(s, FinishReason::length);
    return;
  }
  s.evaluated = known / block * block;
  if (s.evaluated < s.held()) s.state->truncate(s.evaluated);
  if (open == 0) return;

  const auto vocab = static_cast<size_t>(info_.vocab_size);
  const float* const first = logits + static_cast<size_t>(rows - open) * vocab;
  std::vector<Canvas::Offer> offers;
  for (int place = 0; place < open; ++place) {
    if (s.canvas->known(place)) continue;
    const std::span<const float> row(first + static_cast<size_t>(place) * vocab, vocab);
    Draw draw = s.sampler->sample(row, s.tokens, static_cast<int64_t>(s.tokens.size()) + place, {});
    const float sure = certainty(row, draw.token);
    offers.push_back({place, std::move(draw), sure});
  }
  s.canvas->settle(std::move(offers));
  if (!s.canvas->done()) return;
  for (Draw& draw : s.canvas->take())
    if (!put(s, std::move(draw))) return;
}

}  // namespace mlxcel
