#include "text/chat_template.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <utility>
#include <variant>

#include "base/error.h"
#include "text/optional_file.h"
#include "text/rust.h"

namespace mlxcel {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kFuel = 10'000'000;  // steps, and 64 bytes of text each: 640 MB at most
constexpr size_t kLargestFile = 64u << 20;
constexpr size_t kLargestText = 64u << 20;
constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";

using Sources = std::map<std::string, std::string>;  // name -> text

Json read_json(const std::filesystem::path& path) {
  const auto text = read_optional(path, kLargestFile);
  if (!text) return Json::object();
  Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) fail(ErrorKind::bad_checkpoint, "{}: expected a JSON object", path.string());
  return json;
}

/// A text, or a list of {"name", "template"}.
void add_sources(const Json& value, const std::string& where, Sources& sources) {
  if (value.is_string()) {
    sources.emplace(kDefault, value.get<std::string>());
  } else if (value.is_array()) {
    for (const Json& item : value) {
      if (!item.is_object() || !item.contains("name") || !item["name"].is_string() ||
          !item.contains("template") || !item["template"].is_string()) {
        fail(ErrorKind::bad_checkpoint, "{}: chat_template: expected objects with a name and a template",
             where);
      }
      sources.emplace(item["name"].get<std::string>(), item["template"].get<std::string>());
    }
  } else if (!value.is_null()) {
    fail(ErrorKind::bad_checkpoint, "{}: chat_template: expected a text or a list", where);
  }
}

Sources sources_of_folder(const std::filesystem::path& folder, const Json& config) {
  Sources sources;
  if (auto text = read_optional(folder / "chat_template.jinja", kLargestFile)) {
    sources.emplace(kDefault, std::move(*text));
  }
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "additional_chat_templates", none)) {
    if (entry.path().extension() != ".jinja") continue;
    if (auto text = read_optional(entry.path(), kLargestFile)) {
      sources.emplace(entry.path().stem().string(), std::move(*text));
    }
  }
  const auto old = folder / "chat_template.json";
  if (const Json json = read_json(old); json.contains("chat_template")) {
    add_sources(json["chat_template"], old.string(), sources);
  }
  if (config.contains("chat_template")) {
    add_sources(config["chat_template"], (folder / "tokenizer_config.json").string(), sources);
  }
  return sources;
}

Sources sources_of_gguf(const GgufMetadata& metadata) {
  static const std::string key = "tokenizer.chat_template";
  Sources sources;
  for (auto it = metadata.lower_bound(key); it != metadata.end() && it->first.starts_with(key); ++it) {
    const auto* text = std::get_if<std::string>(&it->second.value);
    if (it->first == key && text) sources.emplace(kDefault, *text);
    if (it->first.size() > key.size() + 1 && it->first[key.size()] == '.' && text) {
      sources.emplace(it->first.substr(key.size() + 1), *text);
    }
  }
  return sources;
}

/// bos_token and its like, as templates know them.
Json special_tokens(const Json& config) {
  Json out = Json::object();
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    if (value.is_string()) out[key] = value;
    if (value.is_object() && value.contains("content") && value["content"].is_string())
      out[key] = value["content"];
  }
  return out;
}

rust::Handle<mlxcel_template> compile(const std::string& name, const std::string& source) {
  rust::Text error;
  rust::Handle<mlxcel_template> handle(mlxcel_template_new(rust::borrow(source), error.out()));
  if (!handle) fail(ErrorKind::bad_checkpoint, "chat template '{}': {}", name, error.str());
  return handle;
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;                          // of the default one
  rust::Handle<mlxcel_template> plain, tools;  // tools: null where one template does both
  Json specials;

  Impl(const Sources& sources, Json tokens) : specials(std::move(tokens)) {
    auto it = sources.find(kDefault);
    if (it == sources.end()) it = sources.begin();
    source = it->second;
    plain = compile(it->first, source);
    if (const auto use = sources.find(kToolUse); use != sources.end() && use != it) {
      tools = compile(kToolUse, use->second);
    }
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

std::shared_ptr<const ChatTemplate> ChatTemplate::load(const Checkpoint& checkpoint,
                                                       const Tokenizer& tokenizer) {
  Sources sources;
  Json specials = Json::object();
  if (checkpoint.format == Checkpoint::Format::gguf) {
    if (checkpoint.gguf) sources = sources_of_gguf(*checkpoint.gguf);
  } else {
    const Json map = read_json(checkpoint.path / "special_tokens_map.json");
    const Json config = read_json(checkpoint.path / "tokenizer_config.json");
    specials = special_tokens(map);
    specials.update(special_tokens(config));
    sources = sources_of_folder(checkpoint.path, config);
  }
  if (sources.empty()) return nullptr;
  const auto fill = [&](const char* key, std::optional<TokenId> id) {
    if (!specials.contains(key) && id) specials[key] = tokenizer.token_text(*id);
  };
  fill("bos_token", tokenizer.bos());
  fill("eos_token", tokenizer.eos());
  return std::make_shared<ChatTemplate>(std::make_unique<Impl>(sources, std::move(specials)));
}

std::shared_ptr<const ChatTemplate> ChatTemplate::from_text(std::string_view text, std::string bos_token,
                                                            std::string eos_token) {
  Json specials = {{"bos_token", std::move(bos_token)}, {"eos_token", std::move(eos_token)}};
  const Sources sources = {{kDefault, std::string(text)}};
  return std::make_shared<ChatTemplate>(std::make_unique<Impl>(sources, std::move(specials)));
}

const std::string& ChatTemplate::source() const { return impl_->source; }

std::string ChatTemplate::render(const TemplateInput& input) const {
  Json variables = impl_->specials;
  if (!input.kwargs_json.empty()) {
    const Json kwargs = Json::parse(input.kwargs_json, nullptr, false);
    if (!kwargs.is_object()) fail(ErrorKind::invalid_request, "chat_template_kwargs: expected a JSON object");
    variables.update(kwargs);
  }
  const std::string globals = variables.dump(-1, ' ', false, Json::error_handler_t::replace);
  const mlxcel_template_input raw = {
      .messages = rust::borrow(input.messages_json),
      .tools = rust::borrow(input.tools_json),
      .variables = rust::borrow(globals),
      .add_generation_prompt = input.add_generation_prompt && !input.continue_final_message,
      .continue_final_message = input.continue_final_message,
  };
  const bool with_tools = impl_->tools && !input.tools_json.empty();
  rust::Text text, error;
  mlxcel_template_fault fault{};
  if (!mlxcel_template_render((with_tools ? impl_->tools : impl_->plain).get(), &raw, kFuel, text.out(),
                              &fault, error.out())) {
    throw Error(ErrorKind::invalid_request, error.str());
  }
  std::string out = text.str();
  if (out.size() > kLargestText)
    fail(ErrorKind::invalid_request, "chat template: it makes {} bytes of text, expected at most {}",
         out.size(), kLargestText);
  return out;
}

}  // namespace mlxcel
