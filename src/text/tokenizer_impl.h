// What stands behind Tokenizer; shared by the files that build one. Not for other rooms.
#pragma once

#include <optional>
#include <string>

#include "text/rust.h"
#include "text/tokenizer.h"

namespace mlxcel {

struct Tokenizer::Impl {
  rust::Handle<mlxcel_tokenizer> handle;
  std::optional<TokenId> bos, eos;
  std::optional<int> max_length;
  bool adds_bos = false;
};

/// From tokenizer.ggml.* keys. Failure: bad_checkpoint naming the key.
std::unique_ptr<Tokenizer::Impl> tokenizer_from_gguf(const GgufMetadata& metadata);

}  // namespace mlxcel
