#include "text/tokenizer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/optional_file.h"
#include "text/vocabulary.h"

namespace mlxcel {
namespace {

using Json = nlohmann::json;

constexpr size_t kLargestFile = 256u << 20;
constexpr double kNoLimit = 1e6;  // model_max_length at or above this means "none"

Json read_json(const std::filesystem::path& path) {
  const auto text = read_optional(path, kLargestFile);
  if (!text) return Json::object();
  Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) fail(ErrorKind::bad_checkpoint, "{}: expected a JSON object", path.string());
  return json;
}

/// "bos_token" is a string, or an object with its "content".
std::optional<std::string> named_token(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) {
    return (*it)["content"].get<std::string>();
  }
  return std::nullopt;
}

rust::Handle<mlxcel_tokenizer> parse(std::string_view json, const std::string& where) {
  rust::Text error;
  rust::Handle<mlxcel_tokenizer> handle(mlxcel_tokenizer_from_json(rust::borrow(json), error.out()));
  if (!handle) fail(ErrorKind::bad_checkpoint, "{}: {}", where, error.str());
  return handle;
}

std::unique_ptr<Tokenizer::Impl> from_folder(const std::filesystem::path& folder) {
  const auto file = folder / "tokenizer.json";
  auto impl = std::make_unique<Tokenizer::Impl>();
  if (const auto text = read_optional(file, kLargestFile)) {
    impl->handle = parse(*text, file.string());
  } else {
    std::string where;
    const auto vocabulary = read_folder_vocabulary(folder, where);
    if (!vocabulary)
      fail(ErrorKind::bad_checkpoint,
           "{}: the tokenizer's file is missing (nor is there tokenizer.model, tekken.json, a *.tiktoken, "
           "vocab.json "
           "with merges.txt, or vocab.txt)",
           file.string());
    impl = build_tokenizer(*vocabulary, where);
  }

  const Json config = read_json(folder / "tokenizer_config.json");
  const Json map = read_json(folder / "special_tokens_map.json");
  const auto special = [&](const char* key) -> std::optional<TokenId> {
    auto token = named_token(config, key);
    if (!token) token = named_token(map, key);
    if (!token) return std::nullopt;
    const TokenId id = mlxcel_tokenizer_id(impl->handle.get(), rust::borrow(*token));
    return id < 0 ? std::nullopt : std::optional(id);
  };
  if (const auto bos = special("bos_token")) impl->bos = bos;
  if (const auto eos = special("eos_token")) impl->eos = eos;
  if (config.value("clean_up_tokenization_spaces", Json()) == Json(true)) {
    mlxcel_tokenizer_set_clean_up(impl->handle.get(), true);
  }

  const auto limit = [&](const Json& json, const char* key) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_number() || it->get<double>() >= kNoLimit || it->get<double>() < 1)
      return;
    const int length = static_cast<int>(it->get<double>());
    impl->max_length = std::min(impl->max_length.value_or(length), length);
  };
  limit(config, "model_max_length");
  limit(read_json(folder / "sentence_bert_config.json"), "max_seq_length");
  return impl;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  if (impl_->bos) {
    const auto ids = encode("a", true);
    impl_->adds_bos = !ids.empty() && ids.front() == *impl_->bos;
  }
}

Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const Checkpoint& checkpoint) {
  if (checkpoint.format == Checkpoint::Format::gguf) {
    if (!checkpoint.gguf) fail(ErrorKind::bad_checkpoint, "{}: no GGUF metadata", checkpoint.path.string());
    return std::make_shared<Tokenizer>(tokenizer_from_gguf(*checkpoint.gguf));
  }
  return std::make_shared<Tokenizer>(from_folder(checkpoint.path));
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json) {
  auto impl = std::make_unique<Impl>();
  impl->handle = parse(tokenizer_json, "tokenizer.json");
  return std::make_shared<Tokenizer>(std::move(impl));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  mlxcel_ids ids{nullptr, 0};
  rust::Text error;
  if (!mlxcel_tokenizer_encode(impl_->handle.get(), rust::borrow(text), add_special, parse_special, &ids,
                               error.out())) {
    fail(ErrorKind::invalid_request, "the text cannot be encoded: {}", error.str());
  }
  std::vector<TokenId> out(ids.data, ids.data + ids.size);
  mlxcel_ids_free(ids);
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  rust::Text text, error;
  if (!mlxcel_tokenizer_decode(impl_->handle.get(), ids.data(), ids.size(), skip_special, text.out(),
                               error.out())) {
    fail(ErrorKind::internal, "{} tokens cannot be decoded: {}", ids.size(), error.str());
  }
  return text.str();
}

std::string Tokenizer::token_bytes(TokenId id) const {
  return rust::Text(mlxcel_tokenizer_token_bytes(impl_->handle.get(), id)).str();
}

std::string Tokenizer::token_text(TokenId id) const {
  return rust::Text(mlxcel_tokenizer_token(impl_->handle.get(), id)).str();
}

std::optional<TokenId> Tokenizer::token_id(std::string_view token) const {
  const TokenId id = mlxcel_tokenizer_id(impl_->handle.get(), rust::borrow(token));
  return id < 0 ? std::nullopt : std::optional(id);
}

bool Tokenizer::is_special(TokenId id) const { return mlxcel_tokenizer_is_special(impl_->handle.get(), id); }
int Tokenizer::vocab_size() const { return mlxcel_tokenizer_size(impl_->handle.get()); }
std::optional<TokenId> Tokenizer::bos() const { return impl_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return impl_->eos; }
bool Tokenizer::adds_bos() const { return impl_->adds_bos; }
std::optional<int> Tokenizer::max_length() const { return impl_->max_length; }

struct Detokenizer::Impl {
  rust::Handle<mlxcel_stream> stream;
};

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : impl_(std::make_unique<Impl>()) {
  impl_->stream.reset(mlxcel_stream_new(tokenizer->impl().handle.get(), skip_special));
  if (!impl_->stream) fail(ErrorKind::internal, "this tokenizer's decoder cannot stream");
}

Detokenizer::~Detokenizer() = default;
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;

std::string Detokenizer::push(TokenId id) {
  mlxcel_str piece{nullptr, 0};
  rust::Text error;
  if (!mlxcel_stream_push(impl_->stream.get(), id, &piece, error.out())) {
    fail(ErrorKind::internal, "token {} cannot be decoded: {}", id, error.str());
  }
  return std::string(piece.data, piece.size);
}

std::string Detokenizer::finish() {
  mlxcel_str piece{nullptr, 0};
  rust::Text error;
  if (!mlxcel_stream_finish(impl_->stream.get(), &piece, error.out())) {
    fail(ErrorKind::internal, "the last tokens cannot be decoded: {}", error.str());
  }
  return std::string(piece.data, piece.size);
}

}  // namespace mlxcel
