#include "engine/loop/translation.h"

#include <algorithm>

namespace mlxcel {

Translation::Translation(std::shared_ptr<const Tokenizer> from, std::shared_ptr<const Tokenizer> to)
    : from_(std::move(from)), to_(std::move(to)) {
  for (TokenId id = 0; id < to_->vocab_size(); ++id) {
    std::string bytes = to_->is_special(id) ? to_->token_text(id) : to_->token_bytes(id);
    if (bytes.empty()) continue;
    longest_ = std::max(longest_, bytes.size());
    known_.emplace(std::move(bytes), id);  // of equals the first
  }
  made_.resize(static_cast<size_t>(from_->vocab_size()));
  int same = 0;
  for (TokenId id = 0; id < from_->vocab_size(); ++id)
    same += known_.contains(from_->is_special(id) ? from_->token_text(id) : from_->token_bytes(id)) ? 1 : 0;
  share_ = static_cast<double>(same) / std::max(from_->vocab_size(), 1);
}

const std::vector<TokenId>& Translation::of(TokenId token) {
  static const std::vector<TokenId> nothing;
  if (token < 0 || static_cast<size_t>(token) >= made_.size()) return nothing;  // a padded table's
  auto& made = made_[static_cast<size_t>(token)];
  if (made) return *made;
  const auto same_role = [&](const std::optional<TokenId>& own, const std::optional<TokenId>& other) {
    if (!own || !other || *own != token) return false;
    made.emplace({*other});
    return true;
  };
  const bool special = from_->is_special(token);
  const std::string bytes = special ? from_->token_text(token) : from_->token_bytes(token);
  if (const auto same = known_.find(bytes); same != known_.end())
    made.emplace({same->second});
  else if (!same_role(from_->eos(), to_->eos()) && !same_role(from_->bos(), to_->bos()))
    made = cut(bytes);
  return *made;
}

std::optional<TokenId> Translation::lead(TokenId first) {
  const auto bos = to_->adds_bos() ? to_->bos() : std::nullopt;
  if (!bos) return std::nullopt;
  const auto& pieces = of(first);
  return !pieces.empty() && pieces.front() == *bos ? std::nullopt : bos;
}

std::vector<TokenId> Translation::cut(std::string_view bytes) const {
  std::vector<TokenId> pieces;
  while (!bytes.empty()) {
    size_t length = std::min(bytes.size(), longest_);
    auto found = known_.end();
    for (; length > 0 && found == known_.end(); --length)
      found = known_.find(std::string(bytes.substr(0, length)));
    if (found != known_.end()) {
      pieces.push_back(found->second);
      ++length;  // the loop went one further
    } else {
      length = 1;
    }
    bytes.remove_prefix(length);
  }
  return pieces;
}

const std::vector<TokenId>& TranslatedDrafter::translated(uint64_t id, std::span<const TokenId> tokens) {
  Row& row = rows_[id];
  const size_t most = std::min(row.read.size(), tokens.size());
  const auto kept = static_cast<size_t>(
      std::mismatch(row.read.begin(), row.read.begin() + static_cast<ptrdiff_t>(most), tokens.begin()).first -
      row.read.begin());
  row.read.resize(kept);
  row.ends.resize(kept);
  row.made.resize(kept == 0 ? 0 : row.ends.back());
  if (kept == 0 && !tokens.empty())
    if (const auto lead = to_drafter_.lead(tokens.front())) row.made.push_back(*lead);
  for (const TokenId token : tokens.subspan(kept)) {
    const auto& pieces = to_drafter_.of(token);
    row.read.push_back(token);
    row.made.insert(row.made.end(), pieces.begin(), pieces.end());
    row.ends.push_back(row.made.size());
  }
  return row.made;
}

int TranslatedDrafter::draft(std::span<DraftAsk> asks, int budget) {
  std::vector<DraftAsk> own;
  own.reserve(asks.size());
  for (const DraftAsk& ask : asks)
    own.push_back({.row = ask.row, .tokens = translated(ask.row, ask.tokens), .most = ask.most});
  const int evaluated = drafter_->draft(own, budget);
  for (size_t i = 0; i < asks.size(); ++i)
    for (const TokenId token : own[i].draft) {
      const auto& pieces = to_target_.of(token);
      const size_t room = static_cast<size_t>(asks[i].most) - asks[i].draft.size();
      if (pieces.empty() || room == 0) break;
      asks[i].draft.insert(asks[i].draft.end(), pieces.begin(),
                           pieces.begin() + static_cast<ptrdiff_t>(std::min(room, pieces.size())));
    }
  return evaluated;
}

void TranslatedDrafter::keep_only(std::span<const uint64_t> rows) {
  std::erase_if(
      rows_, [&](const auto& held) { return std::find(rows.begin(), rows.end(), held.first) == rows.end(); });
  drafter_->keep_only(rows);
}

}  // namespace mlxcel
