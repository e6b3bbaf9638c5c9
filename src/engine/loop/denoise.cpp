// Text diffusion in the loop: what a row with a canvas brings to a step, and what comes of it. Blocks of
// tokens see each other, so a block's keys and values are kept only once all of it is known.
#include <algorithm>
#include <cmath>

#include "engine/loop/loop.h"

namespace mlxcel {
namespace {

bool allows(const TokenMask& form, size_t token) {
  return form.empty() || (form[token / 32] >> (token % 32) & 1u) != 0;
}

/// The probability of `token` under these logits, were `mask` not among them, nor what `form` forbids.
float certainty(std::span<const float> logits, TokenId token, TokenId mask, const TokenMask& form = {}) {
  const double own = static_cast<double>(logits[static_cast<size_t>(token)]);
  double sum = 0.0;
  for (size_t i = 0; i < logits.size(); ++i)
    if (i != static_cast<size_t>(mask) && allows(form, i))
      sum += std::exp(static_cast<double>(logits[i]) - own);
  return static_cast<float>(1.0 / sum);
}

/// What `form` forbids becomes as good as impossible.
void forbid(std::span<float> logits, const TokenMask& form) {
  constexpr float kNever = -1e30f;  // finite: its share of an entropy is zero
  for (size_t i = 0; i < logits.size(); ++i)
    if (!allows(form, i)) logits[i] = kNever;
}

/// The model's own way, but for what a request asks.
Diffusion as_asked(Diffusion own, const Denoising& asked, const std::string& type) {
  using Sampler = Diffusion::Sampler;
  const int most = own.redraws ? 4096 : own.block;
  own.steps = asked.steps.value_or(own.steps);
  if (own.steps > most)
    fail_param("max_denoising_steps", "max_denoising_steps: expected at most {}, found {}", most, own.steps);
  if (asked.threshold) own.threshold = *asked.threshold;
  const std::string sampler = asked.sampler.value_or(asked.threshold ? "confidence" : "");
  if (!own.redraws) {
    if (!sampler.empty() && sampler != "confidence")
      fail_param("diffusion_sampler",
                 "diffusion_sampler: {} takes the tokens that it is surest of (\"confidence\")", type);
    if (asked.least || asked.most || asked.whole)
      fail_param("diffusion_max_canvas_length", "{} fills in blocks of {} tokens: their length is not chosen",
                 type, own.block);
    return own;
  }
  if (!sampler.empty())
    own.sampler = sampler == "random"       ? Sampler::random
                  : sampler == "confidence" ? Sampler::confidence
                                            : Sampler::entropy_bound;
  if (asked.most && *asked.most > own.block)
    fail_param("diffusion_max_canvas_length", "diffusion_max_canvas_length: expected at most {}, found {}",
               own.block, *asked.most);
  own.block = asked.most.value_or(own.block);
  own.least = asked.whole ? own.block : std::min(asked.least.value_or(own.least), own.block);
  return own;
}

}  // namespace

void Loop::check_denoising(const Denoising& asked) const {
  if (info_.diffusion.block > 0)
    as_asked(info_.diffusion, asked, info_.model_type);
  else if (asked.any())
    fail_param("max_denoising_steps", "{} writes one token after another: nothing of text diffusion applies",
               info_.model_type);
}

void Loop::begin_canvas(Sequence& s) const {
  const Denoising& asked = s.request.denoising;
  if (info_.diffusion.block == 0) return check_denoising(asked);
  const Diffusion own = as_asked(info_.diffusion, asked.or_as(options_.denoising), info_.model_type);
  if (s.request.prompt_logprobs)
    fail_param("prompt_logprobs", "{} fills in blocks of tokens together: prompts have no log-probabilities",
               info_.model_type);
  s.canvas.emplace(own);
  if (own.redraws) {
    const auto choice = static_cast<uint32_t>(s.request.choice);  // each begins with noise of its own
    s.sketch.emplace(own, info_.vocab_size, s.sampler->seed() + choice * 0x9E3779B9u);
    return;
  }
  s.request.group = 0;             // every choice evaluates its prompt
  s.request.cache_prompt = false;  // what lies behind a block's middle hangs on its end
}

// Whole blocks of what is known, or all that is known and the canvas behind it.
Piece Loop::canvas_piece(Sequence& s, int room) const {
  if (s.sketch) return sketch_piece(s, room);
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

// What is known, as prompts are; behind all of it a draft, which the row forgets again.
Piece Loop::sketch_piece(Sequence& s, int room) const {
  if (s.remaining() > 0) {
    const int until = s.held() < s.boundary ? s.boundary - s.held() : s.remaining();
    return {&s, std::clamp(room, 1, std::min(until, s.remaining())), Wants::none};
  }
  if (s.sketch->empty()) {
    const int size = static_cast<int>(s.tokens.size());  // there are no pages beyond the window
    s.sketch->begin(std::min(s.sketch->length(s.limit - s.generated), context_ - size), size);
  }
  return {&s, static_cast<int>(s.sketch->tokens().size()), Wants::all, s.sketch->tokens()};
}

void Loop::deliver_sketch(Sequence& s, const Piece& piece, const float* logits) {
  s.evaluated = s.held();
  if (piece.draft.empty()) {
    if (s.evaluated == s.boundary && s.boundary > 0) keep(s, s.state->fork());
    if (s.limit == 0 && s.remaining() == 0) finish(s, FinishReason::length);
    return;
  }
  const auto vocab = static_cast<size_t>(info_.vocab_size);
  const int size = static_cast<int>(piece.draft.size());
  const float temperature = s.sketch->temperature();
  std::vector<float> cooled(logits, logits + static_cast<size_t>(size) * vocab);
  for (float& x : cooled) x /= temperature;
  // What a grammar lets come first is known from the first round on.
  if (s.gate) forbid(std::span(cooled).first(vocab), s.gate->mask());
  std::vector<TokenId> drawn;
  for (int place = 0; place < size; ++place) {
    const std::span<const float> row(cooled.data() + static_cast<size_t>(place) * vocab, vocab);
    drawn.push_back(s.sampler->sample(row, s.tokens, s.sketch->counter(place), {}).token);
  }
  if (!s.sketch->settle(std::move(cooled), drawn)) return;
  const auto answer = s.sketch->take();
  for (int place = 0; place < size; ++place) {
    const std::span<const float> row(logits + static_cast<size_t>(place) * vocab, vocab);
    const TokenId token = answer[static_cast<size_t>(place)];
    // What does not fit the form is drawn anew behind what does.
    if (s.gate && !allows(s.gate->mask(), static_cast<size_t>(token))) return;
    Draw draw;
    draw.token = token;
    if (s.request.sampling.logprobs >= 0) draw = mlxcel::score(row, token, s.request.sampling.logprobs);
    if (!put(s, std::move(draw))) return;
  }
}

void Loop::deliver_canvas(Sequence& s, const Piece& piece, const float* logits, int rows) {
  if (s.sketch) return deliver_sketch(s, piece, logits);
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
  if (s.gate) return settle_in_form(s, first, open);
  std::vector<Canvas::Offer> offers;
  for (int place = 0; place < open; ++place) {
    if (s.canvas->known(place)) continue;
    const std::span<const float> row(first + static_cast<size_t>(place) * vocab, vocab);
    Draw draw = s.sampler->sample(row, s.tokens, static_cast<int64_t>(s.tokens.size()) + place, {});
    const float sure = certainty(row, draw.token, info_.diffusion.mask);
    offers.push_back({place, std::move(draw), sure});
  }
  s.canvas->settle(std::move(offers));
  if (!s.canvas->done()) return;
  for (Draw& draw : s.canvas->take())
    if (!put(s, std::move(draw))) return;
}

// Under a grammar a block is settled from the left: what may stand at a place hangs on all before it.
void Loop::settle_in_form(Sequence& s, const float* logits, int open) {
  const auto vocab = static_cast<size_t>(info_.vocab_size);
  const int least = s.canvas->share();
  for (int place = 0; place < open; ++place) {
    const std::span<const float> row(logits + static_cast<size_t>(place) * vocab, vocab);
    const TokenMask form = s.gate->mask();
    Draw draw = s.sampler->sample(row, s.tokens, static_cast<int64_t>(s.tokens.size()), form);
    if (place >= least && !s.canvas->is_sure(certainty(row, draw.token, info_.diffusion.mask, form))) break;
    if (!put(s, std::move(draw))) return;
  }
  s.canvas->clear();
}

}  // namespace mlxcel
