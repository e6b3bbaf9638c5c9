#include "text/gguf_export.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace mlxcel {
namespace {

using Json = nlohmann::json;  // a map: vocabularies are large

// The expressions of the models' published tokenizers.
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Scheme {
  std::array<std::string_view, 6> names;
  const char* split;  // null: GPT-2's own, inside the byte-level step
  bool digits, ignore_merges, add_bos, compose;
};
constexpr Scheme kSchemes[] = {
    {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "mellum"}, nullptr, false, false, false, false},
    {{"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"},
     nullptr,
     true,
     false,
     false,
     false},
    {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2"}, kLlama3, false, true, true, false},
    {{"qwen2", "deepseek-r1-qwen", "megrez"}, kQwen2, false, false, false, true},
    {{"stablelm2", "hunyuan"}, kQwen2, false, false, false, false},
};

const Scheme& scheme_of(const std::string& pre) {
  for (const Scheme& scheme : kSchemes)
    for (const auto name : scheme.names)
      if (!name.empty() && name == pre) return scheme;
  fail(ErrorKind::unsupported, "the pre-tokenizer \"{}\" has no form in tokenizer.json here", pre);
}

class Keys {
 public:
  explicit Keys(const GgufMetadata& metadata) : metadata_(metadata) {}

  template <class T>
  std::optional<T> value(const std::string& key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) return std::nullopt;
    if (const auto* held = std::get_if<T>(&found->second.value)) return *held;
    fail(ErrorKind::bad_checkpoint, "{}: is of another type than expected", key);
  }
  template <class T>
  std::vector<T> list(const std::string& key) const {
    const auto held = value<GgufArray>(key);
    if (!held) return {};
    if (const auto* items = std::get_if<std::vector<T>>(&*held)) return *items;
    fail(ErrorKind::bad_checkpoint, "{}: is a list of another type than expected", key);
  }
  std::optional<int64_t> id(const std::string& key, size_t count) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) return std::nullopt;
    int64_t id = -1;
    if (const auto* n = std::get_if<int64_t>(&found->second.value)) id = *n;
    if (const auto* u = std::get_if<uint64_t>(&found->second.value))
      id = *u < count ? static_cast<int64_t>(*u) : -1;
    return id >= 0 && static_cast<size_t>(id) < count ? std::optional(id) : std::nullopt;
  }

 private:
  const GgufMetadata& metadata_;
};

constexpr int64_t kUnknown = 2, kControl = 3, kUserDefined = 4;

Json byte_level(bool regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", regex}};
}

Json pre_tokenizer(const Scheme& scheme) {
  Json steps = Json::array();
  if (scheme.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (scheme.split)
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", scheme.split}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  steps.push_back(byte_level(scheme.split == nullptr));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

Json post_processor(const std::string& bos, int64_t id) {
  const Json special = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const Json first = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
             second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  return {
      {"type", "TemplateProcessing"},
      {"single", Json::array({special, first})},
      {"pair", Json::array({special, first, second})},
      {"special_tokens", {{bos, {{"id", bos}, {"ids", Json::array({id})}, {"tokens", Json::array({bos})}}}}}};
}

}  // namespace

std::map<std::string, std::string> tokenizer_files(const GgufMetadata& metadata) {
  const Keys keys(metadata);
  const auto model = keys.value<std::string>("tokenizer.ggml.model").value_or("");
  if (model != "gpt2")
    fail(ErrorKind::unsupported, "a \"{}\" vocabulary has no form in tokenizer.json here", model);
  const Scheme& scheme = scheme_of(keys.value<std::string>("tokenizer.ggml.pre").value_or(""));
  const auto tokens = keys.list<std::string>("tokenizer.ggml.tokens");
  const auto types = keys.list<int64_t>("tokenizer.ggml.token_type");
  const auto text = [&](std::optional<int64_t> id) {
    return id ? tokens[static_cast<size_t>(*id)] : std::string();
  };
  const auto bos = keys.id("tokenizer.ggml.bos_token_id", tokens.size());
  const auto eos = keys.id("tokenizer.ggml.eos_token_id", tokens.size());
  const auto pad = keys.id("tokenizer.ggml.padding_token_id", tokens.size());

  Json vocab = Json::object(), added = Json::array(), merges = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) vocab[tokens[i]] = i;
  for (size_t i = 0; i < types.size() && i < tokens.size(); ++i) {
    if (types[i] != kUnknown && types[i] != kControl && types[i] != kUserDefined) continue;
    added.push_back({{"id", i},
                     {"content", tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", types[i] != kUserDefined}});
  }
  for (const std::string& merge : keys.list<std::string>("tokenizer.ggml.merges")) merges.push_back(merge);
  const bool add_bos = keys.value<bool>("tokenizer.ggml.add_bos_token").value_or(scheme.add_bos);
  const Json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", scheme.compose ? Json{{"type", "NFC"}} : Json(nullptr)},
      {"pre_tokenizer", pre_tokenizer(scheme)},
      {"post_processor", add_bos && bos ? post_processor(text(bos), *bos) : Json(nullptr)},
      {"decoder", byte_level(true)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", scheme.ignore_merges},
        {"vocab", vocab},
        {"merges", merges}}}};

  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false},
                 {"add_bos_token", add_bos}};
  if (bos) config["bos_token"] = text(bos);
  if (eos) config["eos_token"] = text(eos);
  if (pad) config["pad_token"] = text(pad);
  if (const auto chat = keys.value<std::string>("tokenizer.chat_template")) config["chat_template"] = *chat;
  const auto printed = [](const Json& json, int indent) {
    return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  };
  return {{"tokenizer.json", printed(tokenizer, -1)}, {"tokenizer_config.json", printed(config, 2)}};
}

}  // namespace mlxcel
