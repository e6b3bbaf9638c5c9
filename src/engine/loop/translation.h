// Drafts by a model over another vocabulary: what it reads is the target's text cut into its own tokens, and
// what it drafts is cut back. Target and drafter need not agree on anything but bytes; a cut that is not the
// one their tokenizers would make costs drafts that do not stand, never another answer. Owner: the loop.
// Thread: model thread. Reference: Timor et al. 2025, "Accelerating LLM Inference with Lossless Speculative
// Decoding Algorithms for Heterogeneous Vocabularies".
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/loop/drafter.h"
#include "text/tokenizer.h"

namespace mlxcel {

/// One vocabulary's tokens as pieces of another's.
class Translation {
 public:
  Translation(std::shared_ptr<const Tokenizer> from, std::shared_ptr<const Tokenizer> to);
  /// The same token where there is one; else its bytes in the longest pieces that there are, bytes that stand
  /// nowhere left out. Begin and end of text are each other's.
  const std::vector<TokenId>& of(TokenId token);
  /// What `to` puts in front of texts, where a text that begins with `first` has no such token.
  std::optional<TokenId> lead(TokenId first);
  /// Share of `from`'s tokens that are tokens of `to`.
  double share() const { return share_; }

 private:
  std::vector<TokenId> cut(std::string_view bytes) const;

  std::shared_ptr<const Tokenizer> from_, to_;
  std::unordered_map<std::string, TokenId> known_;  // tokens of `to` by their bytes
  size_t longest_ = 0;
  double share_ = 0.0;
  std::vector<std::optional<std::vector<TokenId>>> made_;  // by token of `from`
};

class TranslatedDrafter final : public Drafter {
 public:
  TranslatedDrafter(std::unique_ptr<Drafter> drafter, Translation to_drafter, Translation to_target)
      : drafter_(std::move(drafter)), to_drafter_(std::move(to_drafter)), to_target_(std::move(to_target)) {}

  int draft(std::span<DraftAsk> asks, int budget) override;
  void keep_only(std::span<const uint64_t> rows) override;
  double milliseconds() const override { return drafter_->milliseconds(); }

 private:
  struct Row {
    std::vector<TokenId> read;  // the target's
    std::vector<TokenId> made;  // the same in the drafter's
    std::vector<size_t> ends;   // how many of `made` there were behind each of `read`
  };
  const std::vector<TokenId>& translated(uint64_t row, std::span<const TokenId> tokens);

  std::unique_ptr<Drafter> drafter_;
  Translation to_drafter_, to_target_;
  std::unordered_map<uint64_t, Row> rows_;
};

}  // namespace mlxcel
