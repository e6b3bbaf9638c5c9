// Slots to files and back (features.md 3.3). The memory of a slot is a kept prefix of the prompt cache:
// saving pins it while the caller's thread writes, restoring makes it one again.
#include <algorithm>

#include "base/log.h"
#include "engine/front/fingerprint.h"
#include "engine/loop/loop.h"
#include "engine/loop/prefix_file.h"

namespace mlxcel {
namespace {

constexpr int kLeastShifted = 4;  // tokens of a window that may go in any case

}  // namespace

Slots::Slot& Loop::idle_slot(int slot) {
  if (!slots_.known(slot))
    fail(ErrorKind::not_found, "slot {}: expected 0 to {}", slot, options_.parallel - 1);
  if (!cache_) fail(ErrorKind::unsupported, "slot {}: nothing is kept, the prompt cache is off", slot);
  if (slots_.at(slot).busy) throw Busy(fmt::format("slot {} is running a request", slot));
  return slots_.at(slot);
}

Loop::SlotImage Loop::image_of_slot(int slot) {
  const Slots::Slot& held = idle_slot(slot);
  if (kernel_mode() != KernelMode::native)
    fail(ErrorKind::unsupported, "slot {}: the reference kernels' pages cannot be written", slot);
  const int length = static_cast<int>(held.tokens.size());
  auto kept = length > 0 ? cache_->find(held.scope, held.tokens, length) : std::nullopt;
  if (!kept || kept->tokens < length)
    fail(ErrorKind::invalid_request, "slot {} holds nothing that could be saved: {}", slot,
         length == 0 ? "no request has ended in it"
                     : fmt::format("its {} tokens are too few, or have made room for others", length));
  SlotImage result{held.scope, held.tokens, RowImage::of(std::move(kept->row))};
  if (!result.image)
    fail(ErrorKind::unsupported, "slot {}: windows of its layers were cut, so its state has no file form",
         slot);
  return result;
}

void Loop::fill_slot(int slot, const PrefixFile& file) {
  idle_slot(slot);
  const auto& [head, image] = file;
  const int length = static_cast<int>(head.tokens.size()), pages = store_->pages_for(head.tokens.size());
  if (length > context_)
    fail(ErrorKind::invalid_request, "it holds {} tokens, the window has {}", length, context_);
  const int wanted = pages_promised() + 2 * pages;
  if (!make_room(wanted) && !(await_disk() && make_room(wanted)))
    fail(ErrorKind::out_of_memory, "slot {}: {} tokens find no pages, {} of {} are free", slot, length,
         store_->pages_free(), store_->pages_total());
  auto row = row_from_image(*store_, image);
  if (!row || row->length() != length) fail(ErrorKind::invalid_request, "it is of another layout");
  cache_->keep(head.scope, head.tokens, std::move(*row));
  const auto kept = cache_->find(head.scope, head.tokens, length);
  if (!kept || kept->tokens < length)
    fail(ErrorKind::invalid_request, "its {} tokens are more than the prompt cache may hold", length);
  slots_.give_back(slot, head.scope, head.tokens);
  publish();
}

int Loop::empty_slot(int slot) {
  Slots::Slot& held = idle_slot(slot);
  cache_->forget(held.scope, held.tokens);
  if (disk_) disk_->drop(held.scope, held.tokens);
  const int count = static_cast<int>(held.tokens.size());
  held = {};
  publish();
  return count;
}

const std::string& Loop::fingerprint(const Checkpoint& checkpoint) {
  std::call_once(fingerprint_once_, [&] {
    fingerprint_ = model_fingerprint(checkpoint, info_, model_->layout(), kv_formats_,
                                     options_.weight_edits + recent_label_);
  });
  return fingerprint_;
}

// A full window: the oldest tokens but the first `keep` go, the others are evaluated again at their new
// places (any state can do that; features.md 2).
void Loop::shift(Sequence& s) {
  const int size = static_cast<int>(s.tokens.size());
  int keep = s.request.keep_tokens < 0 ? s.prompt_tokens : s.request.keep_tokens;
  if (tokenizer_ != nullptr && s.request.keep_tokens >= 0 && s.shifts == 0) {
    const auto bos = tokenizer_->bos();
    s.keeps_bos = bos && tokenizer_->adds_bos() && s.tokens.front() == *bos;
  }
  keep = std::clamp(keep + (s.keeps_bos ? 1 : 0), 0, std::max(0, context_ - kLeastShifted));
  const int rest = size - keep;
  const int gone =
      std::clamp(s.request.discard_tokens > 0 ? s.request.discard_tokens : rest / 2, 1, rest - 1);
  s.tokens.erase(s.tokens.begin() + keep, s.tokens.begin() + keep + gone);
  s.state.emplace(store_->make_row(s.prompt_tokens));
  s.evaluated = 0;
  s.boundary = 0;
  ++s.shifts;
  s.shifted_at = s.generated;
  ++work_.shifts;
  if (drafter_) {
    std::vector<uint64_t> others;
    for (const auto& r : running_)
      if (r.get() != &s) others.push_back(r->id);
    drafter_->keep_only(others);
  }
  log::debug("engine", "request {}: the window was full: {} tokens forgotten behind the first {}", s.id, gone,
             keep);
}

}  // namespace mlxcel
