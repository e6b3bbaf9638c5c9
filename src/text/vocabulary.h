// A vocabulary as its file tells it, whatever the format, and the tokenizer made of it. Inside this room
// only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer_impl.h"

namespace mlxcel {

/// What a token is, by SentencePiece's numbers.
enum class TokenKind : int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

/// Ids and flags are -1 where the file says nothing.
struct VocabularyFile {
  std::string model;  // gpt2: byte-level BPE; llama: SentencePiece BPE; t5: unigram; bert: WordPiece
  std::string pre;    // for gpt2: how text is cut, by llama.cpp's name (bridge/src/tokenizer/pre.rs)
  std::vector<std::string> tokens;
  std::vector<float> scores;        // empty, or one a token
  std::vector<int32_t> kinds;       // empty, or one a token: TokenKind
  std::vector<std::string> merges;  // "left right"
  std::string charsmap;             // SentencePiece's normalisation table
  int64_t bos = -1, eos = -1, unk = -1, sep = -1, cls = -1;
  std::vector<int64_t> special;  // further ids that are special whatever their kind says
  int32_t add_bos = -1, add_eos = -1, add_space_prefix = -1, remove_extra_whitespaces = -1;
  int32_t space_as_suffix = -1, lowercase = -1, strip_accents = -1;
};

/// Failure: bad_checkpoint, with `where` before the sentence when it is not empty.
std::unique_ptr<Tokenizer::Impl> build_tokenizer(const VocabularyFile& vocabulary, const std::string& where);

/// SentencePiece's ModelProto (`tokenizer.model`). Failure: bad_checkpoint naming `where` and the byte.
VocabularyFile read_sentencepiece(const std::string& bytes, const std::string& where);

/// One BPE token a line, base64 and rank (tiktoken's `.tiktoken`): tokens and merges, no special tokens.
/// `pre` is left to the caller. Failure: bad_checkpoint naming `where` and the line.
VocabularyFile read_tiktoken(const std::string& text, const std::string& where);

/// Mistral's `tekken.json`, special tokens first. Failure: bad_checkpoint; unsupported for a pattern not
/// known.
VocabularyFile read_tekken(const std::string& json, const std::string& where);

/// True for the lines of a tiktoken file, false for a protobuf.
bool looks_like_tiktoken(const std::string& bytes);

/// Byte-level BPE over raw byte strings in order of rank: spells them as GPT-2 does and finds the merges, as
/// transformers' TikTokenConverter does.
void add_byte_level_tokens(VocabularyFile& vocabulary, const std::vector<std::string>& ranked);

/// The vocabulary of a model folder that has no tokenizer.json, from the first of: tekken.json, a *.tiktoken
/// or tiktoken.model, tokenizer.model, spiece.model, vocab.json with merges.txt, vocab.txt; with the special
/// tokens of tokenizer_config.json and added_tokens.json. `where` becomes the file's path. Nothing when there
/// is none.
std::optional<VocabularyFile> read_folder_vocabulary(const std::filesystem::path& folder, std::string& where);

}  // namespace mlxcel
