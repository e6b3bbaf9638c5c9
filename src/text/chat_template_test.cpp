#include "text/chat_template.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "text/testdata.h"

namespace mlxcel {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUser = R"([{"role": "user", "content": "Hi"}])";

std::string render(const std::string& source, const TemplateInput& input) {
  return ChatTemplate::from_text(source, "<s>", "</s>")->render(input);
}

std::string error_of(const std::function<void()>& body, ErrorKind kind = ErrorKind::invalid_request) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(ChatTemplate, RendersAsTransformersDoes) {
  const Json fixture = Json::parse(testdata::load("templates.json"));
  ASSERT_GE(fixture["cases"].size(), 300u);
  TemplateInput input;
  input.messages_json = fixture["messages"].dump();
  input.tools_json = fixture["tools"].dump();
  input.kwargs_json = fixture["variables"].dump();
  for (const Json& one : fixture["cases"]) {
    const auto source = one["source"].get<std::string>();
    std::string text, error;
    bool failed = false;
    try {
      text = render(source, input);
    } catch (const Error& e) {
      failed = true;
      error = e.what();
    }
    if (one.contains("text")) {
      EXPECT_FALSE(failed) << source << "\n" << error;
      EXPECT_EQ(text, one["text"].get<std::string>()) << source;
    } else {
      EXPECT_TRUE(failed) << source << "\n" << text;
      const auto want = one["error"].get<std::string>();
      EXPECT_TRUE(want.empty() || error == want) << source << "\n" << error;
    }
  }
}

TEST(ChatTemplate, ARefusalIsTheTemplatesOwnSentence) {
  const std::string source =
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
      "{% endif %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(render(source, {.messages_json = kUser}), "Hi");
  EXPECT_EQ(error_of([&] {
              render(source,
                     {.messages_json = R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])"});
            }),
            "Conversation roles must alternate user/assistant/user/assistant/...");
  const std::string inside =
      "{% macro check() %}{{ raise_exception('from a macro: ' ~ 3) }}{% endmacro %}{{ check() }}";
  EXPECT_EQ(error_of([&] { render(inside, {.messages_json = kUser}); }), "from a macro: 3");
}

TEST(ChatTemplate, FaultsGiveTheLine) {
  EXPECT_NE(
      error_of([] { render("a\nb\n{{ messages | nothing }}", {.messages_json = kUser}); }).find("line 3"),
      std::string::npos);
  EXPECT_NE(error_of([] { ChatTemplate::from_text("a\n{% if %}", "", ""); }, ErrorKind::bad_checkpoint)
                .find("line 2"),
            std::string::npos);
}

TEST(ChatTemplate, EndlessTemplatesEnd) {
  for (const char* source :
       {"{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ 'x' * 1000000000000 }}",
        "{{ [1] * 100000000 * 100000000 }}", "{{ range(10000000000) | list }}",
        "{% set n = namespace(a='x') %}{% for i in range(29) %}{% set n.a = n.a + n.a %}{% endfor %}{{ n.a "
        "}}",
        "{{ '{:99999999999}'.format(1) }}", "{{ '{:.99999999999f}'.format(1.5) }}",
        "{{ 'a'.center(99999999, 'x' * 1000) }}", "{{ 'ab'.replace('', 'x' * 30000000) }}",
        "{{ 'a'.ljust(10000000000) }}", "{{ 'a\\nb' | indent(1000000000) }}"}) {
    EXPECT_NE(error_of([&] {
                const auto text = render(source, {.messages_json = kUser});
                if (text.size() < 1'000'000) throw Error(ErrorKind::invalid_request, "bounded");
              }),
              "")
        << source;
  }
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "{% if true %}";
  error_of([&] { ChatTemplate::from_text(deep, "", ""); }, ErrorKind::bad_checkpoint);
  error_of([&] { ChatTemplate::from_text("{{ " + std::string(100'000, '(') + "1 }}", "", ""); },
           ErrorKind::bad_checkpoint);
}

TEST(ChatTemplate, InputIsChecked) {
  for (const char* messages : {"", "{}", "[1]", "[", "\"x\"", "null"}) {
    EXPECT_NE(error_of([&] { render("x", {.messages_json = messages}); }).find("messages"),
              std::string::npos);
  }
  EXPECT_NE(error_of([] { render("x", {.messages_json = kUser, .tools_json = "{}"}); }).find("tools"),
            std::string::npos);
  EXPECT_NE(error_of([] { render("x", {.messages_json = kUser, .kwargs_json = "[]"}); }).find("kwargs"),
            std::string::npos);
  error_of([] { render("x", {.messages_json = std::string(100'000, '[')}); });
}

TEST(ChatTemplate, MessagesArriveAsTransformersHandsThemOver) {
  const char* both = R"([{"role":"assistant","content":null,"tool_calls":null,"reasoning":"why"}])";
  EXPECT_EQ(render("{{ messages[0] }}", {.messages_json = both}),
            "{'thinking': 'why', 'role': 'assistant', 'reasoning': 'why', 'reasoning_content': 'why'}");
  EXPECT_EQ(
      render("{{ bos_token }}{{ eos_token }}{{ a }}{{ add_generation_prompt }}{{ tools }}{{ documents }}",
             {.messages_json = kUser, .kwargs_json = R"({"a": 1.0, "messages": [], "eos_token": "E"})"}),
      "<s>E1.0TrueNoneNone");
}

TEST(ChatTemplate, ContentOfCallOnlyTurnsIsNoneToThoseWhoAsk) {
  const char* calls =
      R"([{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f"}}]},{"role":"user"}])";
  for (const char* question : {"m.content is none", "m['content'] is none", "m[\"content\"]  is\nnone",
                               "(m.content) is none", "m.content == none", "not (m.content is not none)"}) {
    const std::string source = fmt::format(
        "{{% for m in messages %}}{{{{ 'calls' if {} else 'text ' ~ m.content }}}};{{% endfor %}}", question);
    // Where the key is missing it is undefined, not none.
    EXPECT_EQ(render(source, {.messages_json = calls}), "calls;text ;") << question;
  }
  EXPECT_EQ(
      render("{{ messages[0].content }}|{{ messages[0].content is defined }}", {.messages_json = calls}),
      "|False");
}

TEST(ChatTemplate, ContinuesTheFinalMessage) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  const std::string trimming =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>{% endfor %}";
  const auto input = [](const std::string& content) {
    return TemplateInput{
        .messages_json = R"([{"role":"user","content":"q"},{"role":"assistant","content":)" + content + "}]",
        .continue_final_message = true};
  };
  EXPECT_EQ(render(source, input(R"("The answer is ")")), "<user>q</user><assistant>The answer is ");
  EXPECT_EQ(render(trimming, input(R"("The answer is ")")), "<user>q</user><assistant>The answer is");
  EXPECT_EQ(
      render("{{ messages[1].content[1].text }}!", input(R"([{"type":"x"},{"type":"text","text":"so "}])")),
      "so ");
  EXPECT_NE(error_of([&] { render("nothing of it", input(R"("text")")); }), "");
  EXPECT_NE(error_of([&] { render(source, input("null")); }), "");
  EXPECT_NE(error_of([&] { render(source, {.messages_json = "[]", .continue_final_message = true}); }), "");
}

TEST(ChatTemplate, StrftimeNowIsLocalTime) {
  const std::time_t before = std::time(nullptr);
  const auto text = render("{{ strftime_now('%Y-%m-%d') }}|{{ strftime_now('') }}", {.messages_json = kUser});
  const std::time_t after = std::time(nullptr);
  const auto day = [](std::time_t when) {
    char out[32];
    std::tm broken{};
    localtime_r(&when, &broken);
    std::strftime(out, sizeof out, "%Y-%m-%d|", &broken);
    return std::string(out);
  };
  EXPECT_TRUE(text == day(before) || text == day(after)) << text;
}

TEST(ChatTemplate, GgufKeys) {
  static const char* key = "tokenizer.chat_template";
  const auto tokenizer =
      Tokenizer::from_json(Json::parse(testdata::load("tokenizers.json"))["tokenizers"][0]["json"].dump());
  const auto load = [&](GgufMetadata metadata) {
    return ChatTemplate::load(testdata::gguf(metadata), *tokenizer);
  };
  EXPECT_EQ(load({{"tokenizer.chat_templates", {std::string("x")}}}), nullptr);
  const auto chat =
      load({{key, {std::string("plain")}}, {std::string(key) + ".tool_use", {std::string("tools")}}});
  ASSERT_NE(chat, nullptr);
  EXPECT_EQ(chat->source(), "plain");
  EXPECT_EQ(chat->render({.messages_json = kUser}), "plain");
  EXPECT_EQ(chat->render({.messages_json = kUser, .tools_json = "[{}]"}), "tools");
}

TEST(ChatTemplate, FoldersAndNamedSets) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "mlxcel_text_templates";
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  const auto put = [&](const std::string& name, const std::string& text) {
    AtomicFile file(path / name);
    file.write(text);
    file.commit();
  };
  const auto tokenizer =
      Tokenizer::from_json(Json::parse(testdata::load("tokenizers.json"))["tokenizers"][0]["json"].dump());
  Checkpoint checkpoint;
  checkpoint.path = path;
  EXPECT_EQ(ChatTemplate::load(checkpoint, *tokenizer), nullptr);
  put("tokenizer_config.json",
      R"({"bos_token": {"content": "<B>"}, "image_token": "<I>", "chat_template": [{"name": "default", "template":
       "{{ bos_token }}{{ image_token }}"}, {"name": "tool_use", "template": "T"}]})");
  const auto named = ChatTemplate::load(checkpoint, *tokenizer);
  EXPECT_EQ(named->render({.messages_json = kUser}), "<B><I>");
  EXPECT_EQ(named->render({.messages_json = kUser, .tools_json = "[{}]"}), "T");
  put("chat_template.jinja", "file");
  EXPECT_EQ(ChatTemplate::load(checkpoint, *tokenizer)->render({.messages_json = kUser}), "file");
  put("tokenizer_config.json", R"({"chat_template": 3})");
  error_of([&] { ChatTemplate::load(checkpoint, *tokenizer); }, ErrorKind::bad_checkpoint);
  std::filesystem::remove_all(path);
}

TEST(ChatTemplate, MayBeUsedFromManyThreads) {
  const auto chat =
      ChatTemplate::from_text("{% for m in messages %}{{ m.content }}{% endfor %}{{ n }}", "", "");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string n = std::to_string(t);
      for (int i = 0; i < 50; ++i) {
        wrong += chat->render({.messages_json = kUser, .kwargs_json = "{\"n\":" + n + "}"}) != "Hi" + n;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace mlxcel
