#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "text/vocabulary.h"

namespace mlxcel {
namespace {

const std::string kPrefix = "tokenizer.ggml.";

/// Typed reads of tokenizer.ggml.* keys.
class Keys {
 public:
  explicit Keys(const GgufMetadata& metadata) : metadata_(metadata) {}

  std::string text(const std::string& key) const {
    const GgufValue* value = find(key);
    if (!value) return "";
    if (const auto* text = std::get_if<std::string>(&value->value)) return *text;
    wrong(key, "a string");
  }

  int64_t id(const std::string& key) const {
    const GgufValue* value = find(key);
    if (!value) return -1;
    int64_t id = -1;
    if (const auto* n = std::get_if<int64_t>(&value->value))
      id = *n;
    else if (const auto* u = std::get_if<uint64_t>(&value->value))
      id = *u > kLargest ? kLargest : static_cast<int64_t>(*u);
    else
      wrong(key, "a token id");
    if (id == -1 || id == kLargest) return -1;  // how writers say "none"
    if (id < 0) wrong(key, "a token id");
    return id;
  }

  int32_t flag(const std::string& key) const {
    const GgufValue* value = find(key);
    if (!value) return -1;
    if (const auto* flag = std::get_if<bool>(&value->value)) return *flag;
    wrong(key, "a bool");
  }

  const std::vector<std::string>* strings(const std::string& key) const {
    return array<std::string>(key, "strings");
  }

  std::vector<int32_t> integers(const std::string& key) const {
    const auto* list = array<int64_t>(key, "integers");
    if (!list) return {};
    std::vector<int32_t> out;
    out.reserve(list->size());
    for (const int64_t n : *list) {
      if (n < std::numeric_limits<int32_t>::min() || n > std::numeric_limits<int32_t>::max())
        wrong(key, "32-bit integers");
      out.push_back(static_cast<int32_t>(n));
    }
    return out;
  }

  std::vector<float> numbers(const std::string& key) const {
    const GgufValue* value = find(key);
    if (!value) return {};
    if (const auto* list = std::get_if<GgufArray>(&value->value)) {
      if (const auto* n = std::get_if<std::vector<double>>(list)) return {n->begin(), n->end()};
      if (const auto* n = std::get_if<std::vector<int64_t>>(list)) return {n->begin(), n->end()};
    }
    wrong(key, "numbers");
  }

  [[noreturn]] static void wrong(const std::string& key, const char* expected) {
    fail(ErrorKind::bad_checkpoint, "{}{}: expected {}", kPrefix, key, expected);
  }

 private:
  static constexpr int64_t kLargest = std::numeric_limits<uint32_t>::max();

  const GgufValue* find(const std::string& key) const {
    const auto it = metadata_.find(kPrefix + key);
    return it == metadata_.end() ? nullptr : &it->second;
  }

  template <class T>
  const std::vector<T>* array(const std::string& key, const char* expected) const {
    const GgufValue* value = find(key);
    if (!value) return nullptr;
    if (const auto* list = std::get_if<GgufArray>(&value->value)) {
      if (const auto* out = std::get_if<std::vector<T>>(list)) return out;
    }
    wrong(key, expected);
  }

  const GgufMetadata& metadata_;
};

}  // namespace

std::unique_ptr<Tokenizer::Impl> tokenizer_from_gguf(const GgufMetadata& metadata) {
  const Keys keys(metadata);
  VocabularyFile out;
  out.model = keys.text("model");
  out.pre = keys.text("pre");
  if (out.model.empty())
    fail(ErrorKind::bad_checkpoint, "{}model is missing: the file has no tokenizer", kPrefix);
  if (const auto* tokens = keys.strings("tokens")) out.tokens = *tokens;
  if (out.tokens.empty()) fail(ErrorKind::bad_checkpoint, "{}tokens is missing or empty", kPrefix);
  if (const auto* merges = keys.strings("merges")) out.merges = *merges;
  out.scores = keys.numbers("scores");
  out.kinds = keys.integers("token_type");
  const auto whole = [&](const char* key, size_t count) {
    if (count != 0 && count != out.tokens.size()) {
      fail(ErrorKind::bad_checkpoint, "{}{}: expected {} entries, one a token, found {}", kPrefix, key,
           out.tokens.size(), count);
    }
  };
  whole("scores", out.scores.size());
  whole("token_type", out.kinds.size());
  for (const int32_t byte : keys.integers("precompiled_charsmap"))
    out.charsmap.push_back(static_cast<char>(byte));
  for (const char* key : {"eot_token_id", "eom_token_id", "padding_token_id", "mask_token_id"}) {
    if (const int64_t id = keys.id(key); id >= 0) out.special.push_back(id);
  }
  out.bos = keys.id("bos_token_id");
  out.eos = keys.id("eos_token_id");
  out.unk = keys.id("unknown_token_id");
  out.sep = keys.id("seperator_token_id");
  out.cls = keys.id("cls_token_id");
  out.add_bos = keys.flag("add_bos_token");
  out.add_eos = keys.flag("add_eos_token");
  out.add_space_prefix = keys.flag("add_space_prefix");
  out.remove_extra_whitespaces = keys.flag("remove_extra_whitespaces");
  out.space_as_suffix = keys.flag("treat_whitespace_as_suffix");
  out.lowercase = keys.flag("normalizer.lowercase");
  out.strip_accents = keys.flag("normalizer.strip_accents");
  return build_tokenizer(out, "");
}

}  // namespace mlxcel
