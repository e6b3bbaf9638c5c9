// Speculation in the loop: which rows get drafts, how long they are, and what becomes of those not drawn.
#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/worker_pool.h"
#include "engine/loop/loop.h"
#include "engine/loop/state_drafter.h"
#include "engine/loop/translation.h"
#include "engine/loop/verify_check.h"
#include "kernels/matrix.h"
#include "models/side_drafter.h"

namespace mlxcel {
namespace {

constexpr double kLeastShared = 0.1;  // of a drafter's vocabulary, where it is another one
constexpr int kProbePrompt = 8;       // tokens before the blocks of the start-up check

/// MLXCEL_MTP_ALLOW_INEXACT: a block that drafts by itself may do so where verifying is not bit-equal.
bool allows_inexact() {
  const char* value = std::getenv("MLXCEL_MTP_ALLOW_INEXACT");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

void Loop::make_drafter(const Checkpoint& checkpoint) {
  const bool by_itself = !asks_for_drafts(options_);
  if (by_itself && !options_.auto_mtp) return;
  std::string name;
  try {
    name = by_itself ? own_drafter() : choose_drafter();
  } catch (const Error& error) {
    if (!by_itself) throw;
    log::warn("engine", "speculative=off: {}'s own block: {}", info_.model_type, error.what());
  }
  if (!drafter_) return;
  if (options_.draft_tokens > most_drafted())
    fail_param("draft", "draft: {} tokens: this drafter makes at most {}", options_.draft_tokens,
               most_drafted());
  const int block = std::min(context_ - kProbePrompt, most_drafted() + 1);
  if (block < 1) {
    drafter_.reset();
    return;
  }
  const VerifyCheck check = check_verify(*model_, *store_, block, kProbePrompt);
  if (by_itself && check.verdict != VerifyCheck::Verdict::exact && !allows_inexact()) {
    log::info("engine", "speculative=off: {}'s own block is left alone, verify {}", info_.model_type,
              to_string(check.verdict));
    draft_kind_ = "";
    drafter_.reset();
    return;
  }
  if (check.verdict == VerifyCheck::Verdict::declined)
    fail(ErrorKind::unsupported,
         "speculation: {} tokens in one block differ from single steps by {:.3g} in log-probability: this "
         "model cannot verify drafts here",
         block, check.largest);
  // Where blocks are exact their length is free: a copied text is drafted far ahead.
  if (options_.prompt_lookup && check.verdict == VerifyCheck::Verdict::exact) own_most_ = DraftWidth::kCopied;
  speculation_label_ =
      fmt::format("{}, up to {} tokens, verify {}", name, most_drafted(), to_string(check.verdict));
  const DraftPolicy::Key key{
      .target = fmt::format("{} {} {} {}", checkpoint.path.filename().string(), info_.model_type,
                            info_.weights_label, info_.parameters),
      .drafter = name,
      .hardware = fmt::format("{}-{}c", kernels::isa_name(), WorkerPool::shared().width()),
      .block = most_drafted() + 1};
  // Prompt lookup costs next to nothing and has its own governor.
  if (!options_.draft_policy || options_.prompt_lookup)
    policy_ = DraftPolicy::forced(key, options_.prompt_lookup ? "asked_for" : "adaptive_disabled");
  else
    policy_ = DraftPolicy(options_.draft_policy_dir, key);
  if (const DraftPolicyReport report = policy_.report(); report.verdict == "disable") {
    drafter_.reset();
    speculation_label_ += fmt::format("; off: {}", report.detail);
  }
  log::info("engine", "speculative={}", speculation_label_);
}

NetworkDrafter::Options Loop::drafter_options() const {
  return {.kv_dtype = store_->kv_dtype(),
          .context = context_,
          .rows = options_.parallel,
          .vocab = info_.vocab_size,
          .p_min = options_.draft_p_min};
}

/// The checkpoint's own block drafts, if it has one; the drafter's name.
std::string Loop::own_drafter() {
  auto head = model_->mtp();
  if (!head) return {};
  drafter_ = std::make_unique<MtpDrafter>(std::move(head), drafter_options());
  draft_kind_ = "internal-mtp";
  own_most_ = DraftWidth::kPredicted;
  return "internal-mtp";
}

/// Makes the drafter that was asked for; its name.
std::string Loop::choose_drafter() {
  NetworkDrafter::Options own = drafter_options();
  if (options_.make_drafter) {
    auto model = options_.make_drafter();
    const ModelInfo& info = model->info();
    if (info.encoder)
      fail_param("model-draft", "model-draft: {} is an encoder, it drafts nothing", info.model_type);
    if (info.max_positions > 0) own.context = std::min(info.max_positions, context_);
    std::string name = fmt::format("draft by {} ({})", info.model_type, info.weights_label);
    draft_kind_ = "draft";
    own_most_ = DraftWidth::kDrafted;
    if (!options_.draft_tokenizer || tokenizer_ == nullptr) {
      drafter_ = std::make_unique<ModelDrafter>(std::move(model), own);
      return name;
    }
    // The engine's tokenizer outlives the loop.
    const std::shared_ptr<const Tokenizer> target(std::shared_ptr<void>(), tokenizer_);
    Translation there(target, options_.draft_tokenizer), back(options_.draft_tokenizer, target);
    if (back.share() < kLeastShared)
      fail_param("model-draft", "model-draft: {:.0f} % of {}'s tokens are tokens of {}: expected {:.0f} %",
                 100 * back.share(), info.model_type, info_.model_type, 100 * kLeastShared);
    name += fmt::format(" over another vocabulary, {:.0f} % in common", 100 * back.share());
    own.vocab = info.vocab_size;
    drafter_ = std::make_unique<TranslatedDrafter>(std::make_unique<ModelDrafter>(std::move(model), own),
                                                   std::move(there), std::move(back));
    return name;
  }
  if (options_.side_drafter) {
    const Checkpoint& side = *options_.side_drafter;
    const std::string name = side.path.filename().string();
    if (drafter_kind(side.config) == DrafterKind::dflash) {
      auto head = DflashHead::load(side.config, side.source, *model_);
      own_most_ = head->form().proposals;
      drafter_ = std::make_unique<DflashDrafter>(std::move(head), own);
      draft_kind_ = "dflash";
      return "dflash by " + name;
    }
    drafter_ = std::make_unique<MtpDrafter>(load_mtp(side.config, side.source, *model_), own);
    draft_kind_ = "mtp";
    own_most_ = DraftWidth::kPredicted;
    return "mtp by " + name;
  }
  if (options_.internal_mtp) {
    const std::string name = own_drafter();
    if (name.empty())
      fail(ErrorKind::unsupported,
           "draft-kind internal-mtp: {} has no block that predicts further here, or the checkpoint came "
           "without its tensors",
           info_.model_type);
    return name;
  }
  drafter_ = std::make_unique<LookupDrafter>();
  draft_kind_ = "prompt-lookup";
  own_most_ = DraftWidth::kLooked;
  return options_.prompt_lookup_gated ? "prompt-lookup (gated)" : "prompt-lookup (graded)";
}

// Blocks of masked tokens have a length they were made for; the others go on as long as they like.
int Loop::most_drafted() const {
  if (options_.draft_tokens == 0) return own_most_;
  return std::string_view(draft_kind_) == "dflash" ? std::min(options_.draft_tokens, own_most_)
                                                   : options_.draft_tokens;
}

// Adds drafts to decoding rows, at most `room` tokens in all, the drafter's own included; how many it took.
int Loop::draft(std::vector<Piece>& pieces, int room) {
  const int rows = static_cast<int>(pieces.size());
  if (options_.prompt_lookup && rows > options_.prompt_lookup_max_batch) return 0;
  if (!policy_.drafts_now()) return 0;
  const TimePoint before = Clock::now();
  // Every row waits for the others' drafts: one more token of each costs so much of a step.
  const double step = cost_.whole(rows);
  const double dearer = cost_.share(rows) * rows + (step > 0.0 ? drafter_->milliseconds() / step : 0.0);
  const double once = step > 0.0 ? drafter_->milliseconds_once() / step : 0.0;
  const int fair = std::max(1, room / rows);
  std::vector<DraftAsk> asks;
  std::vector<Piece*> whose;
  for (Piece& piece : pieces) {
    Sequence& s = *piece.sequence;
    int most = std::min(
        {fair, s.limit - s.generated - 1, most_drafted(), context_ - static_cast<int>(s.tokens.size()) - 1});
    if (room <= 0 || most <= 0) continue;
    if (options_.draft_adaptive) {
      if (options_.prompt_lookup) most = s.width.next_looked_up(options_.prompt_lookup_gated, most);
      if (most > 0) most = s.width.next(dearer, most, once);
    }
    if (most <= 0) continue;
    const bool draws = options_.draft_by_odds && s.sampler->judges();
    asks.push_back({.row = s.id,
                    .tokens = s.tokens,
                    .most = most,
                    .sampler = draws ? &*s.sampler : nullptr,
                    .place = s.place()});
    whose.push_back(&piece);
  }
  if (asks.empty()) return 0;
  std::vector<uint64_t> present;
  for (const auto& s : running_) present.push_back(s->id);
  int taken = 0;
  try {
    drafter_->keep_only(present);
    taken = drafter_->draft(asks, room);
  } catch (const std::exception& error) {
    // The answers do not need it.
    log::error("engine", "drafting failed and is off from now on: {}", error.what());
    drafter_.reset();
    return 0;
  }
  draft_ms_ = milliseconds_between(before, Clock::now());
  for (size_t i = 0; i < asks.size(); ++i) {
    Piece& piece = *whose[i];
    Sequence& s = *piece.sequence;
    piece.draft = std::move(asks[i].draft);
    piece.drawn = std::move(asks[i].drawn);
    if (s.gate) {
      // A drawn token that may not come is judged like any other: what is drawn in its place depends on it.
      const size_t fits = s.gate->would_take(piece.draft) + (piece.drawn.empty() ? 0 : 1);
      piece.draft.resize(std::min(piece.draft.size(), fits));
      piece.drawn.resize(std::min(piece.drawn.size(), piece.draft.size()));
    }
    if (piece.draft.empty()) continue;
    if (!store_->layout().recurrent().empty()) piece.before.emplace(s.state->snapshot());
    piece.count += static_cast<int>(piece.draft.size());
    piece.wants = Wants::all;
    taken += static_cast<int>(piece.draft.size());
  }
  return taken;
}

// Logits and the states that the drafter reads, f32 and in one piece.
std::pair<array, array> Loop::states_beside(Step& step) {
  const auto layers = drafter_->wanted_layers();
  auto [logits, states] =
      layers.empty() ? model_->logits_and_hidden(step) : model_->logits_and_layers(step, layers);
  return {logits, mx::contiguous(mx::astype(states, mx::float32))};
}

// The drafter follows every token that the target evaluates.
void Loop::show_states(const std::vector<Piece>& pieces, const array& states) {
  const float* at = states.data<float>();
  for (const Piece& piece : pieces) {
    const Sequence& s = *piece.sequence;
    drafter_->observe(s.id, s.held() - piece.count, piece.count, at);
    at += static_cast<ptrdiff_t>(piece.count) * states.shape(1);
  }
}

DraftPolicyReport Loop::draft_policy() const {
  if (!*draft_kind_) {
    DraftPolicyReport none;
    none.reason = "no_mtp_dispatch";
    return none;
  }
  DraftPolicyReport report = policy_.report();
  const EngineStats s = stats();
  if (s.drafted > 0)
    report.acceptance_rate = static_cast<double>(s.accepted) / static_cast<double>(s.drafted);
  return report;
}

// What a step of one lone row cost, for the verdict on drafts; 0 ms: it held parts of prompts.
void Loop::judge_drafts(const std::vector<Piece>& pieces, uint64_t made, double ms) {
  const double own = std::exchange(draft_ms_, 0.0);
  if (!policy_.measuring()) return;
  if (pieces.size() > 1 || running_.size() > 1) crowded_ = true;
  if (ms > 0.0 && !crowded_) policy_.observe(static_cast<int>(made), ms + own);
  if (!pieces[0].sequence->done) return;
  policy_.ended(!std::exchange(crowded_, false));
  if (const DraftPolicyReport report = policy_.report(); report.verdict == "disable") drafter_.reset();
}

}  // namespace mlxcel
