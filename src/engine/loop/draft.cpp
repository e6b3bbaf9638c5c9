// Speculation in the loop: which rows get drafts, how long they are, and what becomes of those not drawn.
#include <algorithm>

#include "base/log.h"
#include "engine/loop/loop.h"
#include "engine/loop/mtp_drafter.h"
#include "engine/loop/verify_check.h"

namespace mlxcel {
namespace {

constexpr int kProbePrompt = 8;  // tokens before the blocks of the start-up check

}  // namespace

void Loop::make_drafter() {
  if (options_.make_drafter) {
    auto model = options_.make_drafter();
    const ModelInfo& own = model->info();
    if (own.encoder)
      fail_param("model-draft", "model-draft: {} is an encoder, it drafts nothing", own.model_type);
    const int window = own.max_positions > 0 ? std::min(own.max_positions, context_) : context_;
    const std::string name = fmt::format("{} ({})", own.model_type, own.weights_label);
    const mx::Dtype dtype = store_->kv_dtype();
    drafter_ = std::make_unique<ModelDrafter>(std::move(model),
                                              ModelDrafter::Options{.kv_dtype = dtype,
                                                                    .context = window,
                                                                    .rows = options_.parallel,
                                                                    .vocab = info_.vocab_size,
                                                                    .p_min = options_.draft_p_min});
    draft_kind_ = "draft";
    speculation_label_ = fmt::format("draft by {}", name);
  } else if (options_.internal_mtp) {
    auto head = model_->mtp();
    if (!head)
      fail(ErrorKind::unsupported,
           "draft-kind internal-mtp: {} has no block that predicts further here, or the checkpoint came "
           "without its tensors",
           info_.model_type);
    drafter_ =
        std::make_unique<MtpDrafter>(std::move(head), ModelDrafter::Options{.kv_dtype = store_->kv_dtype(),
                                                                            .context = context_,
                                                                            .rows = options_.parallel,
                                                                            .vocab = info_.vocab_size,
                                                                            .p_min = options_.draft_p_min});
    draft_kind_ = "internal-mtp";
    speculation_label_ = "internal-mtp";
  } else if (options_.prompt_lookup) {
    drafter_ = std::make_unique<LookupDrafter>();
    draft_kind_ = "prompt-lookup";
    speculation_label_ = "prompt-lookup";
  } else {
    return;
  }
  const int block = std::min(context_ - kProbePrompt, most_drafted() + 1);
  if (block < 1) return;
  const VerifyCheck check = check_verify(*model_, *store_, block, kProbePrompt);
  if (check.verdict == VerifyCheck::Verdict::declined)
    fail(ErrorKind::unsupported,
         "speculation: {} tokens in one block differ from single steps by {:.3g} in log-probability: this "
         "model cannot verify drafts here",
         block, check.largest);
  speculation_label_ += fmt::format(", up to {} tokens, verify {}", most_drafted(), to_string(check.verdict));
  log::info("engine", "speculative={}", speculation_label_);
}

int Loop::most_drafted() const {
  const int own = options_.make_drafter   ? DraftWidth::kMost
                  : options_.internal_mtp ? DraftWidth::kPredicted
                                          : DraftWidth::kLooked;
  return options_.draft_tokens > 0 ? options_.draft_tokens : own;
}

// Adds drafts to decoding rows, at most `room` tokens in all, the drafter's own included; how many it took.
int Loop::draft(std::vector<Piece>& pieces, int room) {
  const int rows = static_cast<int>(pieces.size());
  if (options_.prompt_lookup && rows > options_.prompt_lookup_max_batch) return 0;
  // Every row waits for the others' drafts: one more token of each costs so much of a step.
  const double step = cost_.whole(rows);
  const double dearer = cost_.share(rows) * rows + (step > 0.0 ? drafter_->milliseconds() / step : 0.0);
  const int fair = std::max(1, room / rows);
  std::vector<DraftAsk> asks;
  std::vector<Piece*> whose;
  for (Piece& piece : pieces) {
    Sequence& s = *piece.sequence;
    int most = std::min({fair, s.limit - s.generated - 1, most_drafted()});
    if (room <= 0 || most <= 0) continue;
    if (options_.draft_adaptive) most = s.width.next(dearer, most);
    if (most <= 0) continue;
    asks.push_back({.row = s.id, .tokens = s.tokens, .most = most});
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
  for (size_t i = 0; i < asks.size(); ++i) {
    Piece& piece = *whose[i];
    Sequence& s = *piece.sequence;
    piece.draft = std::move(asks[i].draft);
    if (s.gate) piece.draft.resize(s.gate->would_take(piece.draft));
    if (piece.draft.empty()) continue;
    if (!store_->layout().recurrent().empty()) piece.before.emplace(s.state->snapshot());
    piece.count += static_cast<int>(piece.draft.size());
    piece.wants = Wants::all;
    taken += static_cast<int>(piece.draft.size());
  }
  return taken;
}

// Logits and last hidden states, f32 and in one piece.
std::pair<array, array> Loop::states_beside(Step& step) {
  auto [logits, states] = model_->logits_and_hidden(step);
  return {logits, mx::contiguous(mx::astype(states, mx::float32))};
}

// The drafter follows every token that the target evaluates.
void Loop::show_states(const std::vector<Piece>& pieces, const array& states) {
  const float* at = states.data<float>();
  for (const Piece& piece : pieces) {
    const Sequence& s = *piece.sequence;
    drafter_->observe(s.id, s.held() - piece.count, piece.count, at);
    at += static_cast<ptrdiff_t>(piece.count) * info_.hidden;
  }
}

}  // namespace mlxcel
