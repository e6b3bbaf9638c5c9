// Tokenizer and chat template: whether text goes in and out as it should.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "app/doctor.h"
#include "base/error.h"
#include "checkpoint/text_config.h"
#include "engine/front/prompt.h"
#include "text/chat_template.h"

namespace mlxcel::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSamples[] = {"Hello, world!",       " leading and trailing ",
                                    "Grüße, 世界, 🙂👍🏽", "def f(x):\n\treturn x ** 2\n",
                                    "1234567890 3.14159",  "a\u200bb"};

struct Shape {
  const char* name;
  Json messages;
  bool tools = false;
  Json kwargs = nullptr;
  bool continues = false;
};

Json text(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

Json call(const char* id, const char* name) {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", {{"city", "Paris"}}}}}};
}
Json calls(Json list, Json content = nullptr) {
  return {{"role", "assistant"}, {"content", std::move(content)}, {"tool_calls", std::move(list)}};
}
Json result(const char* id) {
  return {{"role", "tool"}, {"tool_call_id", id}, {"name", "weather"}, {"content", "{\"temperature\": 21}"}};
}

/// What conversations look like in practice.
std::vector<Shape> shapes() {
  const Json user = text("user", "Hi"), reply = text("assistant", "Hello."),
             system = text("system", "Be brief.");
  const Json one = call("call_1", "weather"), two = call("call_2", "weather");
  const Json image = {{"role", "user"},
                      {"content", {{{"type", "image"}}, {{"type", "text"}, {"text", "What is this?"}}}}};
  const Json parts = {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Hi"}}}}};
  const Json thought = {{"role", "assistant"}, {"content", "4"}, {"reasoning_content", "2 + 2"}};
  return {
      {"user", Json::array({user})},
      {"system, user", Json::array({system, user})},
      {"two turns", Json::array({user, reply, user})},
      {"system, two turns", Json::array({system, user, reply, user})},
      {"three turns", Json::array({user, reply, user, reply, user})},
      {"empty user text", Json::array({text("user", "")})},
      {"empty system text", Json::array({text("system", ""), user})},
      {"empty answer", Json::array({user, text("assistant", ""), user})},
      {"text as parts", Json::array({parts})},
      {"two user turns in a row", Json::array({user, user})},
      {"system in the middle", Json::array({user, reply, system, user})},
      {"assistant first", Json::array({reply, user})},
      {"developer role", Json::array({text("developer", "Be brief."), user})},
      {"trailing assistant", Json::array({user, reply}), false, nullptr, true},
      {"an image", Json::array({image})},
      {"a long text", Json::array({text("user", std::string(4000, 'x').c_str())})},
      {"markup in the text", Json::array({text("user", "<b>{{ x }}</b> {% if %} </think> <tool_call>")})},
      {"tools offered", Json::array({user}), true},
      {"tools and system", Json::array({system, user}), true},
      {"a call", Json::array({user, calls(Json::array({one})), result("call_1")}), true},
      {"a call, then an answer",
       Json::array({user, calls(Json::array({one})), result("call_1"), reply, user}), true},
      {"parallel calls",
       Json::array({user, calls(Json::array({one, two})), result("call_1"), result("call_2")}), true},
      {"a call with text", Json::array({user, calls(Json::array({one}), "Let me look."), result("call_1")}),
       true},
      {"a call with empty text", Json::array({user, calls(Json::array({one}), ""), result("call_1")}), true},
      {"two calls in turn",
       Json::array(
           {user, calls(Json::array({one})), result("call_1"), calls(Json::array({two})), result("call_2")}),
       true},
      {"a result without tools", Json::array({user, calls(Json::array({one})), result("call_1")})},
      {"thinking on", Json::array({user}), false, {{"enable_thinking", true}}},
      {"thinking off", Json::array({user}), false, {{"enable_thinking", false}}},
      {"a thought in the history", Json::array({user, thought, user})},
      {"thinking and tools",
       Json::array({system, user, calls(Json::array({one})), result("call_1")}),
       true,
       {{"enable_thinking", true}}},
  };
}

constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "weather", "description": "Weather in a city",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])";

TemplateInput input_of(const Shape& shape) {
  TemplateInput input;
  input.messages_json = shape.messages.dump();
  if (shape.tools) input.tools_json = kTools;
  if (!shape.kwargs.is_null()) input.kwargs_json = shape.kwargs.dump();
  input.continue_final_message = shape.continues;
  input.add_generation_prompt = !shape.continues;
  return input;
}

void examine_tokenizer(const Checkpoint& checkpoint, const Tokenizer& tokenizer, Report& report) {
  const Config config = text_config(checkpoint.config);
  if (config.has("vocab_size")) {
    const int rows = config.integer("vocab_size", 0, 1 << 30);
    if (tokenizer.vocab_size() > rows)
      report.fail(
          "tokenizer",
          fmt::format("it knows {} tokens, the embedding has {} rows: text with the tokens beyond fails; "
                      "tokenizer and weights are of different versions",
                      tokenizer.vocab_size(), rows));
  }
  std::vector<std::string> changed;
  for (const char* sample : kSamples) {
    const auto ids = tokenizer.encode(sample, false, false);
    if (tokenizer.decode(ids) != sample) changed.push_back(fmt::format("\"{}\"", sample));
    if (ids.empty()) report.fail("tokenizer", fmt::format("\"{}\" becomes no token at all", sample));
  }
  const bool encoder = checkpoint.config.get<std::string>("model_type", std::string()) == "bert";
  if (!changed.empty() && !encoder)
    report.warn("tokenizer", fmt::format("{} of {} sample texts come back changed (it normalises): {}",
                                         changed.size(), std::size(kSamples), fmt::join(changed, ", ")));
  if (!tokenizer.eos() && checkpoint.eos_ids.empty() && !encoder)
    report.warn("tokenizer", "has no end token, nor has the configuration: answers run to the limit");
  report.settle("tokenizer", fmt::format("{} tokens{}; sample texts come back whole", tokenizer.vocab_size(),
                                         tokenizer.adds_bos() ? ", adds BOS" : ""));
}

void examine_template(const Tokenizer& tokenizer, const ChatTemplate* chat_template, Report& report) {
  if (!chat_template)
    return report.warn("template",
                       "there is none: probably a base model; chats are built as User: and Assistant: lines. "
                       "--chat-template-file gives it one");
  size_t rendered = 0;
  const auto all = shapes();
  for (const Shape& shape : all) {
    try {
      chat_template->render(input_of(shape));
      ++rendered;
    } catch (const std::exception& error) {
      const bool basic = &shape - all.data() < 1;
      const std::string detail =
          fmt::format("refuses \"{}\": {}; such requests get an error", shape.name, error.what());
      if (basic) report.fail("template", detail);
      if (!basic) report.warn("template", detail);
    }
  }
  const Prompt prompt = prepare_chat(tokenizer, chat_template, input_of(all.front()));
  if (prompt.double_bos)
    report.warn(
        "template",
        "begins with BOS twice; one is dropped here, other programs may not. Remove bos_token from it");
  report.settle("template", fmt::format("renders all {} kinds of conversation", rendered));
}

void examine_capabilities(const Checkpoint& checkpoint, const ChatTemplate* chat_template, Report& report) {
  std::vector<std::string> parts;
  const std::string source = chat_template ? chat_template->source() : "";
  const auto has = [&](const char* word) { return source.find(word) != std::string::npos; };
  if (!has("tools"))
    parts.push_back(chat_template ? "no tool format of its own (tools are put into the text)" : "no tools");
  else if (has("[TOOL_CALLS]"))
    parts.push_back("tools as [TOOL_CALLS]");
  else if (has("<|python_tag|>"))
    parts.push_back("tools as <|python_tag|>");
  else if (has("<function="))
    parts.push_back("tools as <function=…> XML");
  else if (has("<arg_key>"))
    parts.push_back("tools as <arg_key> XML");
  else if (has("<|tool_calls_section_begin|>"))
    parts.push_back("tools as sections");
  else if (has("<|channel|>"))
    parts.push_back("tools in Harmony channels");
  else if (has("<tool_call>"))
    parts.push_back("tools as <tool_call>");
  else
    parts.push_back("tools in a format of its own");
  parts.push_back(has("<think>")     ? "reasoning in <think>"
                  : has("<|channel") ? "reasoning in channels"
                                     : "no reasoning marks");
  std::vector<std::string> inputs{"text"};
  if (checkpoint.config.is_object("vision_config")) inputs.push_back("image");
  if (checkpoint.config.is_object("audio_config")) inputs.push_back("audio");
  parts.push_back(fmt::format("input: {}", fmt::join(inputs, ", ")));
  report.ok("capabilities", fmt::format("{}", fmt::join(parts, "; ")));
}

}  // namespace

void examine_text(const Checkpoint& checkpoint, Report& report) {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  const char* at = "tokenizer";
  try {
    tokenizer = Tokenizer::load(checkpoint);
    examine_tokenizer(checkpoint, *tokenizer, report);
    at = "template";
    chat_template = ChatTemplate::load(checkpoint, *tokenizer);
    examine_template(*tokenizer, chat_template.get(), report);
  } catch (const std::exception& error) {
    report.fail(at, fmt::format("{}; chats will not work", error.what()));
  }
  examine_capabilities(checkpoint, chat_template.get(), report);
}

}  // namespace mlxcel::app
