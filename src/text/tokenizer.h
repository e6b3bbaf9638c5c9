// Text to token ids and back: Hugging Face `tokenizers` (a Rust crate behind bridge/), from a folder's
// tokenizer.json or built from the vocabulary in a GGUF file.
// Owner: shared, immutable. Thread: any, concurrently. Failure: bad_checkpoint naming file or key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mlxcel {

using TokenId = int32_t;

class Tokenizer {
 public:
  /// From the checkpoint's own files (tokenizer.json beside config.json) or GGUF metadata.
  static std::shared_ptr<const Tokenizer> load(const Checkpoint& checkpoint);
  static std::shared_ptr<const Tokenizer> from_json(std::string_view tokenizer_json);
  ~Tokenizer();

  /// `add_special`: BOS, CLS/SEP and the like, as the tokenizer's post-processor says. Special tokens
  /// written in `text` are recognised when `parse_special`.
  std::vector<TokenId> encode(std::string_view text, bool add_special, bool parse_special = true) const;
  /// The tokenizer's own decode of the whole list.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;
  /// The bytes a token stands for on its own; may be part of a UTF-8 character. Empty for unknown ids.
  std::string token_bytes(TokenId id) const;
  std::string token_text(TokenId id) const;  // as the vocabulary spells it
  std::optional<TokenId> token_id(std::string_view token) const;
  bool is_special(TokenId id) const;
  int vocab_size() const;  // added tokens included
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  bool adds_bos() const;
  /// A sentence embedder's limit ("max_seq_length", model_max_length below 1e6), if any.
  std::optional<int> max_length() const;

  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Turns a stream of tokens into text whose pieces join to decode(all): bytes of an unfinished UTF-8
/// character are held back. One per sequence; any one thread.
class Detokenizer {
 public:
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);
  ~Detokenizer();
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;
  /// The text that became certain with this token; often empty, never half a character.
  std::string push(TokenId id);
  /// What was held back (an unfinished character becomes U+FFFD, as decode() has it).
  std::string finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxcel
