#include <charconv>
#include <cmath>

#include "api/error.h"
#include "api/json_node.h"
#include "api/json_writer.h"
#include "api/ollama/ollama.h"
#include "api/output_form.h"
#include "api/tools.h"

namespace mlxcel::ollama {
namespace {

using openai::SamplingFields;

void parse_options(const JsonNode& body, Request& out, int vocab_size) {
  const auto options = body.find("options");
  if (!options) return;
  if (options->kind() != JsonKind::object) options->wrong("an object");
  SamplingFields& s = out.sampling;
  auto real = [&](const char* key, double low, double high, std::optional<float>& field) {
    if (const auto x = options->number(key, low, high)) field = static_cast<float>(*x);
  };
  auto whole = [&](const char* key, int64_t low, int64_t high, std::optional<int>& field) {
    if (const auto x = options->integer(key, low, high)) field = static_cast<int>(*x);
  };
  real("temperature", 0, 100, s.temperature);
  real("top_p", 0, 1, s.top_p);
  real("min_p", 0, 1, s.min_p);
  real("repeat_penalty", 0.01, 100, s.repeat_penalty);
  real("presence_penalty", -100, 100, s.presence_penalty);
  real("frequency_penalty", -100, 100, s.frequency_penalty);
  whole("top_k", 0, INT32_MAX, s.top_k);
  whole("repeat_last_n", -1, INT32_MAX, s.repeat_last_n);
  if (const auto seed = options->integer("seed", INT64_MIN, INT64_MAX)) {
    s.seed = openai::fold_seed(*seed);
    s.seed_given = true;
  }
  s.stop = openai::parse_stop(*options);
  // -1 is "to the end", -2 "fill the context": the same here.
  if (const auto n = options->integer("num_predict", -2, INT32_MAX))
    out.max_tokens = *n < 0 ? -1 : static_cast<int>(*n);
  whole("num_keep", -1, INT32_MAX, s.keep);
  if (const auto n = options->integer("num_ctx", 1, INT32_MAX)) out.num_ctx = static_cast<int>(*n);
  real("typical_p", 0, 1, s.typical_p);
  whole("mirostat", 0, 2, s.mirostat);
  real("mirostat_tau", 0, 100, s.mirostat_tau);
  real("mirostat_eta", 0, 1, s.mirostat_eta);
  static constexpr const char* kKnown[] = {
      "temperature",       "top_p",   "min_p",         "repeat_penalty", "presence_penalty",
      "frequency_penalty", "top_k",   "repeat_last_n", "seed",           "stop",
      "num_predict",       "num_ctx", "typical_p",     "mirostat",       "mirostat_tau",
      "mirostat_eta",      "num_keep"};
  for (const auto& [name, value] : options->members()) {
    bool known = false;
    for (const char* key : kKnown) known = known || name == key;
    if (!known) out.ignored.push_back("options." + name);
  }
  (void)vocab_size;
}

void parse_think(const JsonNode& body, Request& out) {
  const auto think = body.find("think");
  if (!think) return;
  JsonWriter kwargs;
  kwargs.begin_object();
  if (think->kind() == JsonKind::boolean) {
    for (const char* key : {"enable_thinking", "thinking"}) kwargs.field(key, think->boolean());
  } else {
    const auto level = think->string();
    if (level != "low" && level != "medium" && level != "high" && level != "max") {
      fail_param("think", "think: expected a boolean, low, medium or high, found \"{}\"",
                 level.substr(0, 64));
    }
    for (const char* key : {"reasoning_effort", "reasoning_strength"}) kwargs.field(key, level);
    for (const char* key : {"enable_thinking", "thinking"}) kwargs.field(key, true);
  }
  kwargs.end_object();
  out.template_kwargs_json = kwargs.take();
}

void parse_common(const JsonNode& body, Request& out, const openai::Bounds& bounds) {
  out.model = body.string("model").value_or("");
  if (out.model.empty()) fail_param("model", "model is required");
  out.stream = body.boolean("stream").value_or(true);
  parse_options(body, out, bounds.vocab_size);
  parse_think(body, out);
  if (const auto keep = body.find("keep_alive")) {
    out.keep_alive =
        keep->kind() == JsonKind::string ? parse_keep_alive(keep->string()) : keep->number(-1e12, 1e12);
  }
  if (const auto format = body.find("format")) {
    if (format->kind() == JsonKind::string) {
      const auto word = format->string();
      if (word == "json")
        out.form = {OutputForm::Kind::json_object, "", "format", false};
      else if (!word.empty())
        fail_param("format", "format: expected \"json\" or a JSON schema, found \"{}\"", word.substr(0, 64));
    } else if (format->kind() == JsonKind::object) {
      out.form = {OutputForm::Kind::json_schema, schema_text(*format), "format", false};
    } else {
      format->wrong("\"json\" or a JSON schema");
    }
  }
  const bool wanted = body.boolean("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, 20);
  if (top && *top > 0 && !wanted) fail_param("top_logprobs", "top_logprobs: only with logprobs: true");
  if (wanted) out.logprobs = static_cast<int>(top.value_or(0));
  out.sampling.adapters = openai::parse_adapters(body);
}

void refuse_images(const JsonNode& node) {
  const auto images = node.find("images");
  if (!images) return;
  if (images->kind() != JsonKind::array) images->wrong("an array");
  if (images->size() > 0)
    refuse_param(501, "not_supported_error", images->path(), "{}: this model takes text only",
                 images->path());
}

void print_message(JsonWriter& out, const JsonNode& message, Request& spec, bool last) {
  if (message.kind() != JsonKind::object) message.wrong("an object with role and content");
  const auto role = message.string("role").value_or("");
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    fail_param(message.path() + ".role", "{}.role: expected system, user, assistant or tool, found \"{}\"",
               message.path(), role.substr(0, 64));
  }
  refuse_images(message);
  const auto content = message.string("content").value_or("");
  out.begin_object().field("role", role).field("content", content);
  if (const auto name = message.string("tool_name")) out.field("name", *name);
  if (const auto id = message.string("tool_call_id")) out.field("tool_call_id", *id);
  if (const auto thinking = message.string("thinking"); thinking && !thinking->empty())
    out.field("reasoning_content", *thinking);
  bool called = false;
  if (const auto calls = message.find("tool_calls"); calls && calls->size() > 0) {
    called = true;
    out.key("tool_calls").begin_array();
    for (const auto& call : calls->items()) {
      const auto function = call.find("function");
      if (!function) fail_param(call.path() + ".function", "{}.function: expected an object", call.path());
      const auto arguments = function->find("arguments");
      out.begin_object().field("type", "function");
      if (const auto id = call.string("id")) out.field("id", *id);
      out.key("function")
          .begin_object()
          .field("name", function->string("name").value_or(""))
          .key("arguments");
      out.raw(arguments ? arguments->dump() : "{}").end_object().end_object();
    }
    out.end_array();
  }
  out.end_object();
  if (!last) return;
  spec.last_is_assistant = role == "assistant" && !called;
  spec.last_content = content;
  if (content.empty() && !called && role != "tool") {
    fail_param(message.path() + ".content",
               "{}.content: the last message is empty; there is nothing to answer", message.path());
  }
}

}  // namespace

double parse_keep_alive(std::string_view text) {
  const std::string whole(text);
  auto wrong = [&]() -> double {
    fail_param("keep_alive", "keep_alive: expected seconds or a duration such as 5m, found \"{}\"",
               whole.substr(0, 64));
  };
  double sign = 1, total = 0;
  if (text.starts_with('-')) {
    sign = -1;
    text.remove_prefix(1);
  }
  if (text.empty()) return wrong();
  while (!text.empty()) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || !std::isfinite(number)) return wrong();
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.starts_with("ms")) {
      total += number / 1e3;
      text.remove_prefix(2);
    } else if (text.empty() || text[0] == 's') {
      total += number;
      if (!text.empty()) text.remove_prefix(1);
    } else if (text[0] == 'm' || text[0] == 'h') {
      total += number * (text[0] == 'm' ? 60 : 3600);
      text.remove_prefix(1);
    } else {
      return wrong();
    }
  }
  return sign * total;
}

std::string plain_model_name(std::string_view name) {
  if (name.ends_with(":latest")) name.remove_suffix(7);
  // host/owner/name: the host has a dot or a port.
  const size_t first = name.find('/');
  if (first != std::string_view::npos && name.find('/', first + 1) != std::string_view::npos &&
      name.substr(0, first).find_first_of(".:") != std::string_view::npos) {
    name.remove_prefix(first + 1);
  }
  return std::string(name);
}

Request parse_chat(std::string_view text, const openai::Bounds& bounds) {
  const JsonNode body = JsonNode::parse_request(text);
  Request out;
  parse_common(body, out, bounds);
  const auto messages = body.find("messages");
  if (messages && messages->kind() != JsonKind::array) messages->wrong("an array");
  out.empty = !messages || messages->size() == 0;
  if (!out.empty) {
    JsonWriter list;
    list.begin_array();
    const auto items = messages->items();
    for (size_t i = 0; i < items.size(); ++i) print_message(list, items[i], out, i + 1 == items.size());
    list.end_array();
    out.messages_json = list.take();
  }
  parse_tools(body, out);
  const auto names = body.unknown();
  out.ignored.insert(out.ignored.end(), names.begin(), names.end());
  return out;
}

Request parse_generate(std::string_view text, const openai::Bounds& bounds) {
  const JsonNode body = JsonNode::parse_request(text);
  Request out;
  parse_common(body, out, bounds);
  refuse_images(body);
  out.prompt = body.string("prompt").value_or("");
  out.messages_param = "prompt";
  out.raw = body.boolean("raw").value_or(false);
  out.suffix = body.string("suffix");
  out.empty = out.prompt.empty() && !out.suffix;
  if (const auto own = body.string("template"); own && !own->empty()) {
    fail_param("template",
               "template: not supported; start the server with --chat-template, or send raw: true");
  }
  if (const auto context = body.find("context")) out.context = context->integers(0, bounds.vocab_size - 1);
  JsonWriter list;
  list.begin_array();
  if (const auto system = body.string("system"); system && !system->empty()) {
    list.begin_object().field("role", "system").field("content", *system).end_object();
  }
  list.begin_object().field("role", "user").field("content", out.prompt).end_object().end_array();
  out.messages_json = list.take();
  const auto names = body.unknown();
  out.ignored.insert(out.ignored.end(), names.begin(), names.end());
  return out;
}

EmbedRequest parse_embed(std::string_view text, bool older) {
  const JsonNode body = JsonNode::parse_request(text);
  EmbedRequest out;
  out.older = older;
  out.model = body.string("model").value_or("");
  if (out.model.empty()) fail_param("model", "model is required");
  const char* key = older ? "prompt" : "input";
  const auto input = body.find(key);
  if (!input) fail_param(key, "{} is required", key);
  if (input->kind() == JsonKind::string) {
    out.inputs.push_back(input->string());
  } else if (input->kind() == JsonKind::array && !older) {
    for (const auto& item : input->items()) out.inputs.push_back(item.string());
  } else {
    input->wrong(older ? "a string" : "a string or an array of strings");
  }
  out.truncate = body.boolean("truncate").value_or(true);
  out.dimensions = static_cast<int>(body.integer("dimensions", 0, INT32_MAX).value_or(0));
  body.find("options");
  body.find("keep_alive");
  out.ignored = body.unknown();
  return out;
}

}  // namespace mlxcel::ollama
