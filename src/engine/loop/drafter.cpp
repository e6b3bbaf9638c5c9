#include "engine/loop/drafter.h"

#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "engine/loop/speculation.h"
#include "state/step.h"

namespace mlxcel {

int LookupDrafter::draft(std::span<DraftAsk> asks, int) {
  for (DraftAsk& ask : asks) ask.draft = looked_up(ask.tokens, ask.most);
  return 0;
}

bool propose(DraftAsk& ask, std::span<const float> logits, int target_vocab, float p_min) {
  const auto best = std::max_element(logits.begin(), logits.end());
  const auto token = static_cast<TokenId>(best - logits.begin());
  if (!std::isfinite(*best) || (token >= target_vocab && !ask.sampler)) return false;
  if (p_min > 0.0f) {
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit - *best));
    if (1.0 / sum < static_cast<double>(p_min)) return false;
  }
  if (ask.sampler) {
    const auto place = ask.place + static_cast<int64_t>(ask.draft.size());
    ask.drawn.push_back(ask.sampler->propose(logits, place));
    ask.draft.push_back(ask.drawn.back().token);
  } else {
    ask.draft.push_back(token);
  }
  return static_cast<int>(ask.draft.size()) < ask.most;
}

NetworkDrafter::NetworkDrafter(const StateLayout& layout, int vocab, const Options& options)
    : o_(options),
      store_(layout, StoreOptions{.kv_dtype = options.kv_dtype,
                                  .max_tokens = (static_cast<size_t>(options.context) + kPageTokens) *
                                                static_cast<size_t>(options.rows)}),
      vocab_(vocab) {}

void NetworkDrafter::evaluate(std::vector<Part>& parts, const Network& network) {
  Step step;
  std::erase_if(parts, [&](Part& part) {
    try {
      step.add(part.state, part.tokens, part.wants);
      return false;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory) throw;
      forget(part.ask->row);
      return true;
    }
  });
  if (parts.empty()) return;
  step.seal();
  const bool wanted = !step.wanted().empty();
  const Given given = network(step, parts);
  const auto settled = [](const array& x) { return mx::contiguous(mx::astype(x, mx::float32)); };
  // Both live on until the next evaluation.
  logits_.emplace(wanted ? settled(given.result) : given.result);
  out_.reset();
  if (given.out) out_.emplace(settled(*given.out));
  std::vector<array> outputs = step.pending();
  outputs.push_back(*logits_);
  if (out_) outputs.push_back(*out_);
  mx::eval(std::move(outputs));
  step.commit();
  const float* at = wanted ? logits_->data<float>() : nullptr;
  size_t token = 0;
  for (Part& part : parts) {
    token += part.tokens.size();
    if (out_) part.out = out_->data<float>() + (token - 1) * static_cast<size_t>(out_->shape(1));
    if (part.wants == Wants::none) continue;
    part.logits = at;
    at += vocab_;
  }
}

int NetworkDrafter::go_on(std::vector<Part>& parts, const Network& network,
                          const std::function<void(Part&)>& next) {
  int evaluated = 0, passes = 0;
  const TimePoint before = Clock::now();
  while (true) {
    std::erase_if(parts,
                  [&](Part& part) { return !propose(*part.ask, logits_of(part), o_.vocab, o_.p_min); });
    if (parts.empty()) break;
    for (Part& part : parts) {
      part.tokens = {part.ask->draft.back()};
      next(part);
    }
    evaluated += static_cast<int>(parts.size());
    evaluate(parts, network);
    ++passes;
  }
  if (passes > 0) {
    const double each = milliseconds_between(before, Clock::now()) / passes;
    pass_ms_ = pass_ms_ == 0.0 ? each : pass_ms_ + 0.1 * (each - pass_ms_);
  }
  logits_.reset();
  out_.reset();
  return evaluated;
}

ModelDrafter::ModelDrafter(std::unique_ptr<Model> model, const Options& options)
    : NetworkDrafter(model->layout(), model->info().vocab_size, options),
      model_(std::move(model)),
      recurrent_(!model_->layout().recurrent().empty()),
      network_([this](Step& step, const std::vector<Part>&) -> Given {
        return {step.wanted().empty() ? model_->hidden(step) : model_->logits(step)};
      }) {}

ModelDrafter::~ModelDrafter() = default;

void ModelDrafter::keep_only(std::span<const uint64_t> rows) {
  std::erase_if(
      rows_, [&](const auto& held) { return std::find(rows.begin(), rows.end(), held.first) == rows.end(); });
}

ModelDrafter::Row& ModelDrafter::row_of(const DraftAsk& ask) {
  const auto found = rows_.find(ask.row);
  if (found != rows_.end()) {
    rewind(found->second, ask.tokens);
    return found->second;
  }
  Row row{store_.make_row(static_cast<int>(ask.tokens.size())), {}, std::nullopt};
  return rows_.emplace(ask.row, std::move(row)).first->second;
}

// Back to where the row's own tokens and what was fed part: behind accepted drafts, before the last token,
// whose logits are wanted.
void ModelDrafter::rewind(Row& row, std::span<const TokenId> tokens) {
  const size_t most = std::min(row.fed.size(), tokens.size() - 1);
  const auto end = row.fed.begin() + static_cast<ptrdiff_t>(most);
  const auto kept =
      static_cast<size_t>(std::mismatch(row.fed.begin(), end, tokens.begin()).first - row.fed.begin());
  if (kept == row.fed.size()) return;
  if (recurrent_ && row.clean && static_cast<size_t>(row.clean->length) <= kept) {
    row.state.restore(*row.clean);
    row.fed.resize(static_cast<size_t>(row.clean->length));
  } else if (!recurrent_ && row.fed.size() - kept <= static_cast<size_t>(kRollbackTokens)) {
    row.state.truncate(static_cast<int>(kept));
    row.fed.resize(kept);
  } else {
    row = Row{store_.make_row(static_cast<int>(tokens.size())), {}, std::nullopt};
  }
}

int ModelDrafter::draft(std::span<DraftAsk> asks, int budget) {
  int evaluated = 0;
  std::vector<Part> parts;
  for (DraftAsk& ask : asks) {
    if (ask.most <= 0 || ask.tokens.size() < 2) continue;
    if (static_cast<int>(ask.tokens.size()) + ask.most > o_.context) continue;
    Row& row = row_of(ask);
    const auto due = ask.tokens.subspan(row.fed.size());
    const size_t count = std::min(due.size(), static_cast<size_t>(std::max(budget - evaluated, 0)));
    if (count == 0) continue;
    parts.push_back({.ask = &ask,
                     .state = &row.state,
                     .tokens = {due.begin(), due.begin() + static_cast<ptrdiff_t>(count)},
                     .wants = count == due.size() ? Wants::last : Wants::none});
    evaluated += static_cast<int>(count);
  }
  if (parts.empty()) return 0;
  const auto fed = [this](const Part& part) {
    auto& tokens = rows_.at(part.ask->row).fed;
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
  };
  evaluate(parts, network_);
  for (const Part& part : parts) fed(part);
  std::erase_if(parts, [](const Part& part) { return part.wants == Wants::none; });
  if (recurrent_)
    for (Part& part : parts) rows_.at(part.ask->row).clean.emplace(part.state->snapshot());
  // A row that falls out for lack of room is forgotten with what it was fed.
  return evaluated + go_on(parts, network_, fed);
}

}  // namespace mlxcel
