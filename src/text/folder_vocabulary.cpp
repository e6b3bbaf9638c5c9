// Vocabularies of model folders that come without a tokenizer.json: which file counts, how it cuts text, and
// the tokens that tokenizer_config.json and added_tokens.json put on top.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "text/optional_file.h"
#include "text/vocabulary.h"

namespace mlxcel {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kLargestFile = size_t{256} << 20;
constexpr int64_t kMostAdded = 1 << 17;

struct Added {
  std::string text;
  bool special = true;
};

Json read_object(const fs::path& path) {
  const auto text = read_optional(path, kLargestFile);
  if (!text) return Json::object();
  Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) fail(ErrorKind::bad_checkpoint, "{}: expected a JSON object", path.string());
  return json;
}

std::string text_of(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return "";
}

bool flag(const Json& json, const char* key, bool absent) {
  const auto it = json.find(key);
  return it == json.end() || !it->is_boolean() ? absent : it->get<bool>();
}

/// Tokens by id, from both files; tokenizer_config.json decides where both speak.
std::map<int64_t, Added> added_tokens(const fs::path& folder, const Json& config) {
  std::map<int64_t, Added> out;
  const std::string file = (folder / "added_tokens.json").string();
  const Json listed = read_object(folder / "added_tokens.json");
  for (const auto& [text, id] : listed.items()) {
    if (!id.is_number_integer()) fail(ErrorKind::bad_checkpoint, "{}: {}: expected an id", file, text);
    out[id.get<int64_t>()] = {text, true};
  }
  const std::string where = (folder / "tokenizer_config.json").string() + ": added_tokens_decoder";
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end() || decoder->is_null()) return out;
  if (!decoder->is_object()) fail(ErrorKind::bad_checkpoint, "{}: expected an object", where);
  for (const auto& [key, token] : decoder->items()) {
    int64_t id = -1;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
    const std::string text = text_of(token);
    if (code != std::errc() || end != key.data() + key.size() || text.empty())
      fail(ErrorKind::bad_checkpoint, "{}: {}: expected an id and its content", where, key);
    if (flag(token, "lstrip", false) || flag(token, "rstrip", false) || flag(token, "single_word", false))
      fail(ErrorKind::unsupported,
           "{}: {} takes in the blanks around it (lstrip, rstrip or single_word), which only a "
           "tokenizer.json can say",
           where, text);
    out[id] = {text, flag(token, "special", false)};
  }
  return out;
}

void put_added(VocabularyFile& vocabulary, const std::map<int64_t, Added>& added, const std::string& where) {
  const auto base = static_cast<int64_t>(vocabulary.tokens.size());
  vocabulary.kinds.resize(vocabulary.tokens.size(), static_cast<int32_t>(TokenKind::normal));
  for (const auto& [id, token] : added) {
    if (id < 0 || id >= base + kMostAdded)
      fail(ErrorKind::bad_checkpoint, "{}: added token {} has id {}; the vocabulary holds {}", where,
           token.text, id, base);
    const auto at = static_cast<size_t>(id);
    while (vocabulary.tokens.size() <= at) {
      vocabulary.tokens.push_back(fmt::format("[UNUSED_{}]", vocabulary.tokens.size()));
      vocabulary.kinds.push_back(static_cast<int32_t>(TokenKind::unused));
    }
    vocabulary.tokens[at] = token.text;
    auto& kind = vocabulary.kinds[at];
    if (kind != static_cast<int32_t>(TokenKind::unknown))
      kind = static_cast<int32_t>(token.special ? TokenKind::control : TokenKind::user_defined);
  }
  if (!vocabulary.scores.empty()) vocabulary.scores.resize(vocabulary.tokens.size(), 0.0f);
}

int64_t find_token(const VocabularyFile& vocabulary, const std::string& text) {
  if (text.empty()) return -1;
  const auto it = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), text);
  return it == vocabulary.tokens.end() ? -1 : it - vocabulary.tokens.begin();
}

/// Special tokens that the family's own code adds, as no file of the folder lists them.
std::vector<std::string> family_specials(const std::string& pre) {
  std::vector<std::string> out;
  if (pre == "qwen2") {  // Qwen 1, tokenization_qwen.py
    out = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    for (int i = 0; i < 205; ++i) out.push_back(fmt::format("<|extra_{}|>", i));
  } else if (pre == "llama-bpe") {  // Llama 3.1 and later, llama-models' tokenizer.py
    out = {"<|begin_of_text|>",
           "<|end_of_text|>",
           "<|reserved_special_token_0|>",
           "<|reserved_special_token_1|>",
           "<|finetune_right_pad_id|>",
           "<|step_id|>",
           "<|start_header_id|>",
           "<|end_header_id|>",
           "<|eom_id|>",
           "<|eot_id|>",
           "<|python_tag|>"};
    for (size_t i = 2; out.size() < 256; ++i) out.push_back(fmt::format("<|reserved_special_token_{}|>", i));
  } else if (pre == "llama4") {  // llama-models' llama4/tokenizer.py
    const auto reserved = [&](const char* name, int from, int count) {
      for (int i = from; i < from + count; ++i)
        out.push_back(fmt::format("<|{}reserved_special_token_{}|>", name, i));
    };
    const auto put = [&](std::initializer_list<const char*> names) {
      out.insert(out.end(), names.begin(), names.end());
    };
    put({"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
         "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"});
    reserved("text_post_train_", 0, 6);
    put({"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
    reserved("text_post_train_", 8, 61);
    put({"<|image_start|>", "<|image_end|>"});
    reserved("vision_", 0, 2);
    put({"<|tile_x_separator|>", "<|tile_y_separator|>"});
    reserved("vision_", 2, 4);
    put({"<|image|>"});
    reserved("vision_", 6, 1);
    put({"<|patch|>"});
    reserved("vision_", 7, 1041);
    reserved("reasoning_", 0, 8);
    put({"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
    reserved("", 0, 2048 - static_cast<int>(out.size()));
  } else if (pre == "kimi-k2") {  // Kimi K2, tokenization_kimi.py
    for (int i = 0; i < 256; ++i) out.push_back("");
  }
  return out;
}

std::string tiktoken_family(const fs::path& file, size_t tokens, const Json& config) {
  const std::string name = file.filename().string(), type = text_of(config.value("tokenizer_class", Json()));
  if (name == "qwen.tiktoken" || type == "QWenTokenizer") return "qwen2";
  if (name == "tiktoken.model" || type == "TikTokenTokenizer") return "kimi-k2";
  if (tokens == 128000) return "llama-bpe";
  if (tokens == 200000) return "llama4";
  fail(ErrorKind::unsupported,
       "{}: a tiktoken vocabulary of {} tokens; those of Llama 3 (128000) and 4 (200000), Qwen 1 and Kimi "
       "are known: use an export "
       "with tokenizer.json",
       file.string(), tokens);
}

VocabularyFile tiktoken(const fs::path& file, const std::string& text, const Json& config,
                        std::map<int64_t, Added>& added) {
  VocabularyFile out = read_tiktoken(text, file.string());
  const size_t base = out.tokens.size();
  out.pre = tiktoken_family(file, base, config);
  const auto specials = family_specials(out.pre);
  for (size_t i = 0; i < specials.size(); ++i) {
    const auto id = static_cast<int64_t>(base + i);
    added.try_emplace(
        id, Added{specials[i].empty() ? fmt::format("<|reserved_token_{}|>", id) : specials[i], true});
  }
  out.add_bos = out.pre.starts_with("llama"), out.add_eos = 0;
  return out;
}

VocabularyFile merges_file(const fs::path& folder, const Json& config, const std::string& where) {
  VocabularyFile out;
  const std::string type = text_of(config.value("tokenizer_class", Json()));
  out.model = "gpt2";
  if (type == "GPT2Tokenizer" || type == "CodeGenTokenizer" || type.empty()) out.pre = "gpt-2";
  if (type == "Qwen2Tokenizer") out.pre = "qwen2";
  if (out.pre.empty())
    fail(ErrorKind::unsupported,
         "{}: tokenizer_class {} from vocab.json and merges.txt (GPT2Tokenizer, CodeGenTokenizer and "
         "Qwen2Tokenizer "
         "are read); use an export with tokenizer.json",
         where, type);
  if (flag(config, "add_prefix_space", false))
    fail(ErrorKind::unsupported, "{}: add_prefix_space needs a tokenizer.json", where);
  std::map<int64_t, std::string> by_id;
  const Json ids = read_object(where);
  for (const auto& [text, id] : ids.items()) {
    if (!id.is_number_integer() || !by_id.emplace(id.get<int64_t>(), text).second)
      fail(ErrorKind::bad_checkpoint, "{}: {}: expected an id of its own", where, text);
  }
  for (auto& [id, text] : by_id) {
    if (id != static_cast<int64_t>(out.tokens.size()))
      fail(ErrorKind::bad_checkpoint, "{}: id {} is missing", where, out.tokens.size());
    out.tokens.push_back(text);
  }
  const std::string merges = read_file(folder / "merges.txt", kLargestFile);
  for (size_t begin = 0; begin < merges.size();) {
    const size_t end = std::min(merges.find('\n', begin), merges.size());
    std::string line = merges.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && !line.starts_with("#version")) out.merges.push_back(std::move(line));
    begin = end + 1;
  }
  out.add_bos = flag(config, "add_bos_token", false), out.add_eos = 0;
  return out;
}

VocabularyFile word_pieces(const std::string& text, const Json& config) {
  VocabularyFile out;
  out.model = "bert";
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    if (word.ends_with('\r')) word.pop_back();
    // The builder takes llama.cpp's spelling, which marks words instead of their continuations.
    const bool bracketed = word.starts_with('[') && word.ends_with(']');
    if (word.size() > 2 && word.starts_with("##"))
      word.erase(0, 2);
    else if (!bracketed)
      word.insert(0, "\u2581");
    out.tokens.push_back(std::move(word));
    begin = end + 1;
  }
  const auto named = [&](const char* key, const char* usual) {
    const std::string token = text_of(config.value(key, Json()));
    return find_token(out, token.empty() ? usual : token);
  };
  out.unk = named("unk_token", "[UNK]"), out.cls = named("cls_token", "[CLS]"),
  out.sep = named("sep_token", "[SEP]");
  for (const int64_t id : {named("pad_token", "[PAD]"), named("mask_token", "[MASK]")})
    if (id >= 0) out.special.push_back(id);
  out.lowercase = flag(config, "do_lower_case", true);
  const auto accents = config.find("strip_accents");
  if (accents != config.end() && accents->is_boolean()) out.strip_accents = accents->get<bool>();
  return out;
}

void settle_bos_eos(VocabularyFile& vocabulary, const Json& config) {
  const auto named = [&](const char* key, int64_t& id) {
    if (const int64_t found = find_token(vocabulary, text_of(config.value(key, Json()))); found >= 0)
      id = found;
  };
  named("bos_token", vocabulary.bos);
  named("eos_token", vocabulary.eos);
  if (vocabulary.pre.starts_with("llama") && vocabulary.bos < 0)
    vocabulary.bos = find_token(vocabulary, "<|begin_of_text|>");
  if (config.contains("add_bos_token"))
    vocabulary.add_bos = flag(config, "add_bos_token", vocabulary.add_bos == 1);
  if (config.contains("add_eos_token"))
    vocabulary.add_eos = flag(config, "add_eos_token", vocabulary.add_eos == 1);
}

std::optional<fs::path> tiktoken_path(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".tiktoken") || name == "tiktoken.model") found.push_back(entry.path());
  }
  if (found.size() > 1)
    fail(ErrorKind::bad_checkpoint, "{}: two tiktoken vocabularies, {} and {}", folder.string(),
         found[0].filename().string(), found[1].filename().string());
  return found.empty() ? std::nullopt : std::optional(found[0]);
}

}  // namespace

std::optional<VocabularyFile> read_folder_vocabulary(const fs::path& folder, std::string& where) {
  const Json config = read_object(folder / "tokenizer_config.json");
  auto added = added_tokens(folder, config);
  const auto read = [&](const fs::path& path) {
    where = path.string();
    return read_optional(path, kLargestFile);
  };
  if (const auto text = read(folder / "tekken.json")) return read_tekken(*text, where);

  std::optional<VocabularyFile> out;
  if (const auto path = tiktoken_path(folder)) {
    where = path->string();
    out = tiktoken(*path, read_file(*path, kLargestFile), config, added);
  }
  for (const char* name : {"tokenizer.model", "spiece.model"}) {
    if (out) break;
    if (const auto bytes = read(folder / name))
      out = looks_like_tiktoken(*bytes) ? tiktoken(folder / name, *bytes, config, added)
                                        : read_sentencepiece(*bytes, where);
  }
  if (!out && fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt")) {
    where = (folder / "vocab.json").string();
    out = merges_file(folder, config, where);
  }
  if (!out) {
    if (const auto text = read(folder / "vocab.txt")) out = word_pieces(*text, config);
  }
  if (!out) return std::nullopt;
  put_added(*out, added, where);
  if (out->model != "bert") settle_bos_eos(*out, config);
  return out;
}

}  // namespace mlxcel
