// Byte-level BPE vocabularies by rank: tiktoken's lines (OpenAI's tiktoken/load.py) and Mistral's tekken.json
// (mistral-common, tokens/tokenizers/tekken.py).
#include <nlohmann/json.hpp>

#include <charconv>
#include <set>

#include "base/base64.h"
#include "base/error.h"
#include "text/vocabulary.h"

namespace mlxcel {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostTokens = size_t{1} << 22;
constexpr size_t kLongestToken = 16 * 1024;

/// mistral-common's pattern of every published tekken file; bridge/src/tokenizer/pre.rs cuts by it.
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Collects tokens by rank: each rank once, none left out, no token twice.
class Ranks {
 public:
  explicit Ranks(const std::string& where) : where_(where) {}

  void add(int64_t rank, std::string bytes) {
    if (rank < 0 || rank >= static_cast<int64_t>(kMostTokens))
      fail(ErrorKind::bad_checkpoint, "{}: rank {}: expected 0 to {}", where_, rank, kMostTokens - 1);
    if (bytes.empty() || bytes.size() > kLongestToken)
      fail(ErrorKind::bad_checkpoint, "{}: rank {}: a token of {} bytes, expected 1 to {}", where_, rank,
           bytes.size(), kLongestToken);
    const auto at = static_cast<size_t>(rank);
    if (at >= tokens_.size()) tokens_.resize(at + 1);
    if (!tokens_[at].empty()) fail(ErrorKind::bad_checkpoint, "{}: rank {} is given twice", where_, rank);
    tokens_[at] = std::move(bytes);
  }

  std::vector<std::string> take() {
    std::set<std::string_view> seen;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].empty()) fail(ErrorKind::bad_checkpoint, "{}: rank {} is missing", where_, i);
      if (!seen.insert(tokens_[i]).second)
        fail(ErrorKind::bad_checkpoint, "{}: the token of rank {} has an earlier rank too", where_, i);
    }
    if (tokens_.empty()) fail(ErrorKind::bad_checkpoint, "{}: no tokens", where_);
    return std::move(tokens_);
  }

 private:
  const std::string& where_;
  std::vector<std::string> tokens_;
};

/// "base64 rank", or nothing.
std::optional<std::pair<std::string, int64_t>> parse_line(std::string_view line) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || blank == 0) return std::nullopt;
  const std::string_view number = line.substr(blank + 1);
  int64_t rank = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), rank);
  if (code != std::errc() || end != number.data() + number.size()) return std::nullopt;
  auto bytes = base64_decode(line.substr(0, blank));
  if (!bytes) return std::nullopt;
  return std::pair(std::move(*bytes), rank);
}

std::string_view take_line(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

template <class T>
T field(const Json& object, const char* key, const std::string& where) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || it == object.end())
    fail(ErrorKind::bad_checkpoint, "{}: {} is missing", where, key);
  try {
    return it->template get<T>();
  } catch (const Json::exception&) {
    fail(ErrorKind::bad_checkpoint, "{}: {}: a {} was not expected here", where, key, it->type_name());
  }
}

/// The special tokens in order of id; those the file leaves out are <SPECIAL_n>, as mistral-common names
/// them.
std::vector<std::string> tekken_specials(const Json& json, int64_t count, const std::string& where) {
  // Files before version 7 do not list them: mistral-common's own list.
  static constexpr const char* kDeprecated[] = {"<unk>",
                                                "<s>",
                                                "</s>",
                                                "[INST]",
                                                "[/INST]",
                                                "[AVAILABLE_TOOLS]",
                                                "[/AVAILABLE_TOOLS]",
                                                "[TOOL_RESULTS]",
                                                "[/TOOL_RESULTS]",
                                                "[TOOL_CALLS]",
                                                "[IMG]",
                                                "<pad>",
                                                "[IMG_BREAK]",
                                                "[IMG_END]",
                                                "[PREFIX]",
                                                "[MIDDLE]",
                                                "[SUFFIX]",
                                                "[SYSTEM_PROMPT]",
                                                "[/SYSTEM_PROMPT]",
                                                "[TOOL_CONTENT]"};
  std::vector<std::string> out(static_cast<size_t>(count));
  const auto put = [&](int64_t rank, std::string text) {
    if (rank < 0 || rank >= count)
      fail(ErrorKind::bad_checkpoint, "{}: special token {} has rank {}, expected 0 to {}", where, text, rank,
           count - 1);
    out[static_cast<size_t>(rank)] = std::move(text);
  };
  if (json.contains("special_tokens") && !json["special_tokens"].is_null()) {
    for (const Json& token : field<std::vector<Json>>(json, "special_tokens", where))
      put(field<int64_t>(token, "rank", where), field<std::string>(token, "token_str", where));
  } else {
    for (size_t i = 0; i < std::size(kDeprecated) && i < out.size(); ++i) out[i] = kDeprecated[i];
  }
  std::set<std::string_view> seen;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].empty()) out[i] = fmt::format("<SPECIAL_{}>", i);
    if (!seen.insert(out[i]).second)
      fail(ErrorKind::bad_checkpoint, "{}: two special tokens are {}", where, out[i]);
  }
  return out;
}

}  // namespace

bool looks_like_tiktoken(const std::string& bytes) {
  std::string_view rest = bytes;
  return parse_line(take_line(rest)).has_value();
}

VocabularyFile read_tiktoken(const std::string& text, const std::string& where) {
  Ranks ranks(where);
  std::string_view rest = text;
  for (size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = take_line(rest);
    if (line.empty()) continue;
    auto entry = parse_line(line);
    if (!entry)
      fail(ErrorKind::bad_checkpoint, "{}: line {}: expected a base64 token, a blank and its rank", where,
           number);
    ranks.add(entry->second, std::move(entry->first));
  }
  VocabularyFile out;
  out.model = "gpt2";
  add_byte_level_tokens(out, ranks.take());
  out.kinds.assign(out.tokens.size(), static_cast<int32_t>(TokenKind::normal));
  return out;
}

VocabularyFile read_tekken(const std::string& text, const std::string& where) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) fail(ErrorKind::bad_checkpoint, "{}: expected a JSON object", where);
  const Json config = field<Json>(json, "config", where);
  const auto pattern = field<std::string>(config, "pattern", where);
  if (pattern != kTekkenPattern)
    fail(ErrorKind::unsupported, "{}: config.pattern is not that of the published tekken files: {}", where,
         pattern);
  const auto size = field<int64_t>(config, "default_vocab_size", where);
  const auto specials = field<int64_t>(config, "default_num_special_tokens", where);
  if (specials < 3 || size <= specials || size > static_cast<int64_t>(kMostTokens))
    fail(ErrorKind::bad_checkpoint, "{}: default_vocab_size {} and default_num_special_tokens {} do not fit",
         where, size, specials);

  // The file may list more than the model uses: the first of them count.
  Ranks ranks(where);
  for (const Json& token : field<std::vector<Json>>(json, "vocab", where)) {
    const auto rank = field<int64_t>(token, "rank", where);
    if (rank >= size - specials) continue;
    auto bytes = base64_decode(field<std::string>(token, "token_bytes", where));
    if (!bytes) fail(ErrorKind::bad_checkpoint, "{}: rank {}: token_bytes is not base64", where, rank);
    ranks.add(rank, std::move(*bytes));
  }
  const auto ranked = ranks.take();
  if (static_cast<int64_t>(ranked.size()) != size - specials)
    fail(ErrorKind::bad_checkpoint, "{}: expected {} tokens, one for each id that is not special, found {}",
         where, size - specials, ranked.size());

  VocabularyFile out;
  out.model = "gpt2";
  out.pre = "tekken";
  out.tokens = tekken_specials(json, specials, where);
  out.kinds.assign(out.tokens.size(), static_cast<int32_t>(TokenKind::control));
  add_byte_level_tokens(out, ranked);
  out.kinds.resize(out.tokens.size(), static_cast<int32_t>(TokenKind::normal));
  out.unk = 0, out.bos = 1, out.eos = 2;
  out.add_bos = 1, out.add_eos = 0;
  return out;
}

}  // namespace mlxcel
