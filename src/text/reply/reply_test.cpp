// Every wire format, cut into pieces of every size: thoughts, content and calls come out the same, and no
// mark does.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "text/reply/in_pieces.h"
#include "text/reply/json_prefix.h"
#include "text/reply/loose_value.h"

namespace mlxcel {
namespace {

using testing::kTools;
using testing::parse;
using Reply = testing::ReadReply;

struct Case {
  const char* name;
  const char* source;  // what stands in the template
  std::string text;
  std::vector<std::pair<std::string, std::string>> calls;
  std::string content = "";
  std::string thought = "";
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"hermes",
       "tools <tool_call>",
       "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", "
       "\"days\": 2}}\n</tool_call>\n"
       "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"a<b\"}}\n</tool_call>",
       {{"get_weather", R"({"city":"Paris","days":2})"}, {"search", R"({"query":"a<b"})"}},
       "Let me look."},
      {"thought and call",
       "tools <tool_call> <think>",
       "<think>\nWhich city?\n</think>\n\n<tool_call>{\"name\":\"search\",\"arguments\":{}}</tool_call>",
       {{"search", "{}"}},
       "",
       "Which city?"},
      {"qwen3-coder",
       "tools <tool_call>\n<function=",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nNew "
       "York\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
       "<parameter=exact>\ntrue\n</parameter>\n<parameter=at>\n{\"lat\": "
       "1.50}\n</parameter>\n</function>\n</tool_call>",
       {{"get_weather", R"({"city":"New York","days":3,"exact":true,"at":{"lat":1.50}})"}}},
      {"qwen3-coder without wrapper",
       "tools <tool_call>\n<function=",
       "<function=search>\n<parameter=query>\nline 1\nline 2\n</parameter>\n</function>",
       {{"search", R"({"query":"line 1\nline 2"})"}}},
      {"glm",
       "tools <tool_call> <arg_key>",
       "Sure.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</"
       "arg_key>\n"
       "<arg_value>5</arg_value>\n</tool_call>",
       {{"get_weather", R"({"city":"Oslo","days":5})"}},
       "Sure."},
      {"glm without arguments",
       "tools <tool_call> <arg_key>",
       "<tool_call>search</tool_call>",
       {{"search", "{}"}}},
      {"longcat",
       "tools <longcat_tool_call> <longcat_think>",
       "<longcat_think>hm</longcat_think><longcat_tool_call>search\n<longcat_arg_key>query</longcat_arg_key>"
       "<longcat_arg_value>12</longcat_arg_value></longcat_tool_call>",
       {{"search", R"({"query":"12"})"}},
       "",
       "hm"},
      {"mistral list",
       "tools [TOOL_CALLS]",
       R"([TOOL_CALLS][{"name": "search", "arguments": {"query": "x"}, "id": "abcdefghi"}, {"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}])",
       {{"search", R"({"query":"x"})"}, {"get_weather", R"({"city":"Rome"})"}}},
      {"mistral names",
       "tools [TOOL_CALLS] [THINK]",
       "[THINK]let me[/THINK]On it.[TOOL_CALLS]search[ARGS]{\"query\": "
       "\"a]b\"}[TOOL_CALLS]get_weather[CALL_ID]x1[ARGS]{\"city\": \"Rome\"}",
       {{"search", R"({"query":"a]b"})"}, {"get_weather", R"({"city":"Rome"})"}},
       "On it.",
       "let me"},
      {"llama bare",
       "tools \"parameters\":",
       R"({"name": "search", "parameters": {"query": "x"}}; {"name": "get_weather", "parameters": {"city": "Y"}})",
       {{"search", R"({"query":"x"})"}, {"get_weather", R"({"city":"Y"})"}}},
      {"llama tag",
       "tools <|python_tag|>",
       R"(<|python_tag|>{"type": "function", "name": "search", "parameters": {"query": "x"}})",
       {{"search", R"({"query":"x"})"}}},
      {"llama built in",
       "tools <|python_tag|>",
       "<|python_tag|>search.call(query=\"a, b\")",
       {{"search", R"({"query":"a, b"})"}}},
      {"kimi",
       "tools <|tool_calls_section_begin|> <think>",
       "<think>so<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|"
       ">{\"query\": \"x\"}"
       "<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{\"city\": "
       "\"Y\"}<|tool_call_end|>"
       "<|tool_calls_section_end|>",
       {{"search", R"({"query":"x"})"}, {"get_weather", R"({"city":"Y"})"}},
       "",
       "so"},
      {"deepseek v3",
       "tools <｜tool▁calls▁begin｜>",
       "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{\"query\": "
       "\"x\"}\n```<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       {{"search", R"({"query":"x"})"}},
       "Hm."},
      {"deepseek v3.1",
       "tools <｜tool▁calls▁begin｜>",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{\"query\": "
       "\"x\"}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>"
       "get_weather<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {{"search", R"({"query":"x"})"}, {"get_weather", "{}"}}},
      {"deepseek v3.2",
       "tools <｜DSML｜function_calls>",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
       "string=\"true\">7</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"days\" "
       "string=\"false\">7</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       {{"get_weather", R"({"city":"7","days":7})"}}},
      {"minimax",
       "tools <minimax:tool_call>",
       "<minimax:tool_call>\n<invoke name=\"search\">\n<parameter name=\"query\">a > "
       "b</parameter>\n<parameter name=\"limit\">null</parameter>\n"
       "</invoke>\n<invoke name=\"get_weather\">\n<parameter "
       "name=\"city\">Z</parameter>\n</invoke>\n</minimax:tool_call>",
       {{"search", R"({"query":"a > b","limit":null})"}, {"get_weather", R"({"city":"Z"})"}}},
      {"atem",
       "tools <atem:function_calls>",
       "<atem:function_calls><atem:invoke name=\"search\"><atem:parameter "
       "name=\"query\">x</atem:parameter></atem:invoke></atem:function_calls>",
       {{"search", R"({"query":"x"})"}}},
      {"minicpm",
       "tools <function name=\"",
       "<function name=\"search\"><param name=\"query\"><![CDATA[a<b]]></param></function>",
       {{"search", R"({"query":"a<b"})"}}},
      {"gemma 4",
       "tools <|tool_call> <|channel>",
       "<|channel>thought\nhm\n<channel|><|tool_call>call:get_weather{city:<|\"|>Paris, "
       "\"FR\"<|\"|>,days:2,at:{lat:1,names:[<|\"|>a<|\"|>]}}<tool_call|>",
       {{"get_weather", R"({"city":"Paris, \"FR\"","days":2,"at":{"lat":1,"names":["a"]}})"}},
       "",
       "hm"},
      {"function gemma",
       "tools <start_function_call>",
       "<start_function_call>call:search{query:<escape>x{y}<escape>}<end_function_call>",
       {{"search", R"({"query":"x{y}"})"}}},
      {"lfm2",
       "tools <|tool_call_start|>",
       "<|tool_call_start|>[search(query='it\\'s', limit=None), "
       "get_weather(city=\"[Y](z)\")]<|tool_call_end|>Done.",
       {{"search", R"({"query":"it's","limit":null})"}, {"get_weather", "{\"city\":\"[Y](z)\"}"}},
       "Done."},
      {"pythonic",
       "tools [func_name1(",
       "[search(query=\"x\"), get_weather(city=\"Y\", days=2)]",
       {{"search", R"({"query":"x"})"}, {"get_weather", R"({"city":"Y","days":2})"}}},
      {"olmo",
       "tools <function_calls>",
       "<function_calls>search(query=\"x\")\nget_weather(city=\"Y\")</function_calls>",
       {{"search", R"({"query":"x"})"}, {"get_weather", R"({"city":"Y"})"}}},
      {"granite",
       "tools <|tool_call|>",
       R"(<|tool_call|>[{"name": "search", "arguments": {"query": "x"}}])",
       {{"search", R"({"query":"x"})"}}},
      {"phi",
       "tools <|tool_call|> <|/tool_call|>",
       R"(<|tool_call|>[{"name": "search", "arguments": {"query": "x"}}]<|/tool_call|>)",
       {{"search", R"({"query":"x"})"}}},
      {"command a",
       "tools <|START_ACTION|> <|START_THINKING|>",
       "<|START_THINKING|>I will.<|END_THINKING|><|START_ACTION|>[\n {\"tool_call_id\": \"0\", "
       "\"tool_name\": \"search\", \"parameters\": {\"query\": \"x\"}}\n]<|END_ACTION|>",
       {{"search", R"({"query":"x"})"}},
       "",
       "I will."},
      {"command a answer",
       "tools <|START_ACTION|> <|START_THINKING|>",
       "<|START_RESPONSE|>Hello.<|END_RESPONSE|>",
       {},
       "Hello."},
      {"command r",
       "tools Action: ```json",
       "Action: ```json\n[{\"tool_name\": \"search\", \"parameters\": {\"query\": \"x\"}}]\n```",
       {{"search", R"({"query":"x"})"}}},
      {"apertus",
       "tools <|tools_prefix|>",
       R"(<|tools_prefix|>[{"search": {"query": "x"}}]<|tools_suffix|>)",
       {{"search", R"({"query":"x"})"}}},
      {"nemotron",
       "tools <TOOLCALL>",
       R"(<TOOLCALL>[{"name": "search", "arguments": {"query": "x"}}]</TOOLCALL>)",
       {{"search", R"({"query":"x"})"}}},
      {"kimi k3",
       "tools <|open|>tools",
       "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument "
       "key=\"city\" type=\"string\"<|sep|>Tokyo"
       "<|close|>argument<|sep|><|open|>argument key=\"days\" "
       "type=\"number\"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
       {{"get_weather", R"({"city":"Tokyo","days":3})"}}},
      {"harmony",
       "tools <|channel|> <|message|>",
       "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"X\"}<|call|>",
       {{"get_weather", R"({"city":"X"})"}},
       "",
       "Need it."},
      {"harmony answer",
       "tools <|channel|> <|message|>",
       "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>It is 4 < "
       "5.<|return|>",
       {},
       "It is 4 < 5.",
       "Easy."},
      {"namespace",
       "tools <tool_call>",
       R"(<tool_call>{"name": "functions.search", "arguments": {}}</tool_call>)",
       {{"search", "{}"}}},
      {"glm form under a JSON template",
       "tools <tool_call>",  // H21
       "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
       {{"search", R"({"query":"x"})"}}},
      {"unescaped backslash",
       "tools <tool_call>",  // H21
       "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"\\d+ and \\w\"}}\n</tool_call>",
       {{"search", R"({"query":"\\d+ and \\w"})"}}},
      {"missing bracket",
       "tools <tool_call>",
       "<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}</tool_call>",
       {{"search", R"({"query":"x"})"}}},
      {"bracket too many",
       "tools <tool_call>",
       "<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}}}\n</tool_call>",
       {{"search", R"({"query":"x"})"}}},
      {"end mark in a string",
       "tools <tool_call>",
       R"(<tool_call>{"name": "search", "arguments": {"query": "</tool_call>"}}</tool_call>)",
       {{"search", R"({"query":"</tool_call>"})"}}},
      {"great numbers",
       "tools <tool_call>",
       R"(<tool_call>{"name": "search", "arguments": {"limit": 123456789012345678901234567890}}</tool_call>)",
       {{"search", R"({"limit":123456789012345678901234567890})"}}},
      {"just text",
       "tools <tool_call> <think>",
       "a < b and <b>bold</b>  <tool_ \n",
       {},
       "a < b and <b>bold</b>  <tool_ \n"},
      {"JSON that is no call",
       "tools \"parameters\":",
       R"({"answer": {"name": "x"}} and [1])",
       {},
       R"({"answer": {"name": "x"}} and [1])"},
      {"a list that is no call", "tools [func_name1(", "[1, 2] and [search]", {}, "[1, 2] and [search]"},
  };
  return all;
}

TEST(Reply, EveryFormatAtEveryChunkSize) {
  for (const auto& c : cases()) {
    for (const size_t size : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{4096}}) {
      const Reply reply = parse(c.source, c.text, size);
      EXPECT_EQ(reply.content, c.content) << c.name << " in pieces of " << size;
      EXPECT_EQ(reply.thought, c.thought) << c.name << " in pieces of " << size;
      EXPECT_FALSE(reply.unparsed) << c.name << " in pieces of " << size;
      ASSERT_EQ(reply.calls.size(), c.calls.size()) << c.name << " in pieces of " << size;
      for (size_t i = 0; i < c.calls.size(); ++i) {
        EXPECT_EQ(reply.calls[i].name, c.calls[i].first) << c.name;
        EXPECT_EQ(reply.calls[i].arguments, c.calls[i].second) << c.name;
      }
      std::set<std::string> ids;
      for (const auto& call : reply.calls) ids.insert(call.id);
      EXPECT_EQ(ids.size(), reply.calls.size()) << c.name;
    }
  }
}

TEST(Reply, EveryFormatIsKnownByItsOwnSign) {
  for (const auto& name :
       {"hermes", "mistral", "llama", "kimi", "deepseek", "glm", "qwen3_coder", "harmony", "gemma4"}) {
    const auto names = reply_format_names();
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  EXPECT_EQ(reply_format("")->name, "hermes");
  EXPECT_FALSE(reply_format("{{ messages }}")->native_tools);
  EXPECT_EQ(reply_format("tools '<tool_call>\\n<function='")->name, "qwen3_coder");
}

TEST(Reply, CallsThatCannotBeReadStayText) {  // H21
  for (const std::string text :
       {"<tool_call>not a call at all</tool_call>", "<tool_call>{\"name\": }</tool_call>",
        "<tool_call>{\"name\": \"a b\"}</tool_call>",
        "<tool_call>{\"name\": \"search\", \"arguments\": [1]}</tool_call>", "<tool_call>",
        "<tool_call>{\"name\": \"search\", \"argum", "<tool_call><function=search><parameter=query"}) {
    for (const size_t size : {size_t{1}, size_t{7}, size_t{4096}}) {
      const Reply reply = parse("tools <tool_call>", text, size);
      EXPECT_EQ(reply.content, text) << size;
      EXPECT_TRUE(reply.calls.empty());
      EXPECT_TRUE(reply.unparsed) << text;
    }
  }
}

TEST(Reply, AnAnswerCutByItsLimitIsNotCompleted) {
  const std::string text = "<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"x\"";
  const Reply whole = parse("tools <tool_call>", text, 5);
  ASSERT_EQ(whole.calls.size(), 1u);
  const Reply cut = parse("tools <tool_call>", text, 5, "", ThoughtMode::split, /*whole=*/false);
  ASSERT_EQ(cut.calls.size(), 1u);  // it had begun, and stays as far as it came
  EXPECT_EQ(cut.calls[0].arguments, R"({"query":"x")");
  EXPECT_EQ(cut.content, "");
  const std::string early = "<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": ";
  EXPECT_EQ(parse("tools <tool_call>", early, 5, "", ThoughtMode::split, false).content, early);
}

TEST(Reply, ArgumentsComeBeforeTheCallIsWhole) {
  const struct {
    const char* source;
    std::string text;
    std::string said = R"({"query":"a long)";
  } cases[] = {
      {"tools <tool_call>\n<function=", "<tool_call>\n<function=search>\n<parameter=query>\na long\n</param"},
      {"tools <tool_call>\n<function=", "<function=search><parameter=query>a > b\n\n<", R"({"query":"a > b)"},
      {"tools <tool_call>\n<function=",
       "<tool_call>\n<function=search>\n<parameter=limit>\n3\n</parameter>\n<parameter=query>\nü\"\xc3",
       R"({"limit":3,"query":"ü\")"},
      {"tools <tool_call> <arg_key>",
       "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a long</arg_v"},
      {"tools <minimax:tool_call>",
       "<minimax:tool_call>\n<invoke name=\"search\">\n<parameter name=\"query\">a long</"},
      {"tools <function name=\"", "<function name=\"search\"><param name=\"query\">a long"},
      {"tools <｜DSML｜function_calls>",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"search\">\n<｜DSML｜parameter name=\"limit\" "
       "string=\"true\">7 or so",
       R"({"limit":"7 or so)"},
      {"tools <|open|>tools",
       "<|open|>tools<|sep|><|open|>call tool=\"search\" index=\"1\"<|sep|><|open|>argument key=\"query\" "
       "type=\"string\"<|sep|>a long<|close|>arg"},
      {"tools <|tool_call> <|channel>",
       "<|tool_call>call:search{query:<|\"|>a long<|\"|>,limit:", R"({"query":"a long")"},
      {"tools <|tool_call_start|>",
       "<|tool_call_start|>[search(query='a, long', limit=", R"({"query":"a, long")"},
      {"tools [func_name1(", "[search(query=\"a long\",", R"({"query":"a long")"},
      {"tools <tool_call>", "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"a long"},
      {"tools [TOOL_CALLS] [ARGS]", "[TOOL_CALLS]search[ARGS]{\"query\": \"a long"},
      {"tools <|channel|> <|message|>",
       "<|channel|>commentary to=functions.search<|message|>{\"query\": \"a long"},
  };
  for (const auto& c : cases) {
    ReplyOptions options;
    options.format = reply_format(c.source);
    options.tools = std::make_shared<const ToolTypes>(kTools);
    ReplyParser parser(std::move(options));
    std::string said;
    bool open = false;
    for (const char byte : c.text) {
      for (const auto& piece : parser.push(std::string_view(&byte, 1))) {
        EXPECT_NE(piece.kind, ReplyPiece::Kind::content) << c.source << piece.text;
        EXPECT_NE(piece.kind, ReplyPiece::Kind::call) << c.source;
        open = open || piece.kind == ReplyPiece::Kind::call_open;
        if (piece.kind == ReplyPiece::Kind::arguments) said += piece.text;
      }
    }
    EXPECT_TRUE(open) << c.source;
    EXPECT_EQ(said, c.said) << c.source;
  }
}

TEST(Reply, ACallInTagsThatBreaksIsClosedOnce) {
  // The text stays as content, and is not read as the same call again.
  for (const std::string text :
       {"<tool_call><function=search><parameter=query>x y",
        "<function=search><parameter=query>x</parameter>oops",
        "<function=search><parameter=query>x</parameter><parameter=query>y</parameter></function>",
        "<function=search>\n<parameter=query>\nx\n</parameter>\n</tool_call>"}) {
    for (const size_t size : {size_t{1}, size_t{7}, size_t{4096}}) {
      const Reply reply = parse("tools <tool_call>\n<function=", text, size);
      ASSERT_EQ(reply.calls.size(), 1u) << text << size;
      EXPECT_EQ(nlohmann::json::parse(reply.calls[0].arguments)["query"].get<std::string>()[0], 'x');
      EXPECT_TRUE(reply.unparsed) << text;
      EXPECT_EQ(reply.content.substr(0, 10), text.substr(0, 10)) << text;
    }
  }
}

TEST(Reply, NoPieceOfATextThatMayStillBeSomethingElse) {
  // CDATA's frame is not part of a value; null may be no text; a parameter without a type is read when whole.
  const struct {
    const char* source;
    std::string text, said;
  } cases[] = {
      {"tools <function name=\"", "<function name=\"search\"><param name=\"query\">\n <![CDATA[a", ""},
      {"tools <function name=\"", "<function name=\"search\"><param name=\"query\"> <![CD", ""},
      {"tools <minimax:tool_call>",
       "<minimax:tool_call>\n<invoke name=\"search\">\n<parameter name=\"limit\">12", ""},
      {"tools <minimax:tool_call>",
       "<minimax:tool_call>\n<invoke name=\"search\">\n<parameter name=\"more\">12", ""},
      {"tools <minimax:tool_call>",
       "<minimax:tool_call>\n<invoke name=\"nobody\">\n<parameter name=\"query\">12", ""},
  };
  for (const auto& c : cases) {
    ReplyOptions options;
    options.format = reply_format(c.source);
    options.tools = std::make_shared<const ToolTypes>(kTools);
    ReplyParser parser(std::move(options));
    std::string said;
    for (const char byte : c.text)
      for (const auto& piece : parser.push(std::string_view(&byte, 1))) said += piece.text;
    EXPECT_EQ(said, c.said) << c.text;
  }
}

TEST(Reply, ACallThatBreaksAfterItBeganIsClosed) {
  const std::string text =
      "<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"x\", oops}}</tool_call>";
  for (const size_t size : {size_t{1}, size_t{7}, size_t{4096}}) {
    const Reply reply = parse("tools <tool_call>", text, size);
    ASSERT_EQ(reply.calls.size(), 1u) << size;
    EXPECT_EQ(reply.calls[0].arguments, R"({"query":"x"})");
    EXPECT_TRUE(reply.unparsed);
    // Nothing of it is lost but the mark that ends it, since a call has come.
    EXPECT_EQ(reply.content, text.substr(0, text.find("</tool_call>")));
  }
}

TEST(JsonPrefix, JoinsToTheCompactTextAndCanAlwaysBeClosed) {
  for (const std::string text :
       {R"({"a": 1, "b": [1, 2.5e3, {"c": null}, []], "d": "x\"y\\z\n", "e": {}, "f": true})", R"({})",
        R"( { "k\u00e9" : -0.5 } )", R"({"s": "\ud83d\ude00 \u00e9 \/ \t", "t": ""})"}) {
    for (const size_t size : {size_t{1}, size_t{2}, size_t{5}, size_t{4096}}) {
      JsonPrefix json;
      std::string said;
      for (size_t at = 0; at < text.size(); at += size) {
        said += json.feed(std::string_view(text).substr(at, size));
        ASSERT_FALSE(json.broken()) << text << " at " << at;
        if (!said.empty()) {
          EXPECT_TRUE(nlohmann::json::parse(said + json.closers(), nullptr, false).is_object()) << said;
        }
      }
      EXPECT_TRUE(json.complete());
      EXPECT_EQ(said, read_loose(text, LooseDialect::json, true, false).value.json);
    }
  }
}

TEST(JsonPrefix, SaysNothingThatIsNotStrict) {
  for (const std::string text :
       {"[1]", "{a: 1}", R"({"a" 1})", R"({"a": 01})", R"({"a": nul, "b": 1})", R"({"a": oops})",
        R"({"a": +1, "b": 2})", R"({"a")", R"({"a": )", R"({"a": 12)"}) {
    JsonPrefix json;
    EXPECT_EQ(json.feed(text), "") << text;
  }
  JsonPrefix json;
  EXPECT_EQ(json.feed(R"({"a": "x\q"})"), R"({"a":"x)");
  EXPECT_TRUE(json.broken());
  EXPECT_EQ(json.closers(), R"("})");
  JsonPrefix half;
  EXPECT_EQ(half.feed(R"({"a": "\ud83d!"})"), R"({"a":")");
  EXPECT_TRUE(half.broken());
}

TEST(Reply, ThoughtsWhereverTheyBegin) {
  const std::string source = "<think> </think>";
  for (const size_t size : {size_t{1}, size_t{3}, size_t{4096}}) {
    // Opened by the template, closed by the model.
    auto reply = parse(source, "hm\n</think>\n\nYes.", size, "<|assistant|><think>\n");
    EXPECT_EQ(reply.thought, "hm");
    EXPECT_EQ(reply.content, "Yes.");
    // Opened and closed by the template.
    reply = parse(source, "Yes.", size, "<|assistant|><think>\n\n</think>\n\n");
    EXPECT_EQ(reply.thought, "");
    EXPECT_EQ(reply.content, "Yes.");
    // By the model, after blanks; then once more.
    reply = parse(source, "\n<think>a</think>b<think>c</think> d", size);
    EXPECT_EQ(reply.thought, "ac");
    EXPECT_EQ(reply.content, "bd");
    // H24: cut inside the thought.
    reply = parse(source, "still thin", size, "<think>\n", ThoughtMode::split, false);
    EXPECT_EQ(reply.thought, "still thin");
    EXPECT_EQ(reply.content, "");
    // Cut inside a mark: what there is of it is nobody's text, unless it may be something else.
    reply = parse(source, "<think>still thin\n</thi", size, "", ThoughtMode::split, false);
    EXPECT_EQ(reply.thought, "still thin\n");
    reply = parse(source, "<thi", size, "", ThoughtMode::split, false);
    EXPECT_EQ(reply.content + reply.thought, "");
    reply = parse(source, "a <thi", size, "", ThoughtMode::split, false);
    EXPECT_EQ(reply.content, "a <thi");
    // Left in the content.
    reply = parse(source, "<think>a</think> b", size, "", ThoughtMode::keep);
    EXPECT_EQ(reply.content, "<think>a</think> b");
    // Both.
    reply = parse(source, "<think>a</think> b", size, "", ThoughtMode::both);
    EXPECT_EQ(reply.content, "<think>a</think> b");
    EXPECT_EQ(reply.thought, "a");
    // An end that nobody began.
    reply = parse(source, "</think>b", size);
    EXPECT_EQ(reply.content, "b");
    // A word that only looks like a mark.
    reply = parse(source, "<thin air> & </thinker", size);
    EXPECT_EQ(reply.content, "<thin air> & </thinker");
  }
}

TEST(Reply, WithoutToolsNothingIsACall) {
  const std::string text = "<tool_call>{\"name\": \"search\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(parse("tools <tool_call>", text, 3, "", ThoughtMode::split, true, "[]").content, text);
}

TEST(Reply, HostileTextNeverBreaksTheParser) {
  const std::vector<std::string> bits = {"<tool_call>",
                                         "</tool_call>",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         "\"",
                                         "\\",
                                         "\\u",
                                         "d8",
                                         "<think>",
                                         "</think>",
                                         "<function=",
                                         "<parameter=",
                                         ">",
                                         "name",
                                         ":",
                                         ",",
                                         "call:",
                                         "<|\"|>",
                                         "(",
                                         ")",
                                         "=",
                                         "\n",
                                         " ",
                                         "search",
                                         "<invoke name=\"",
                                         "<function=search>",
                                         "<parameter=query>",
                                         "</parameter>",
                                         "<invoke name=\"search\">",
                                         "<parameter name=\"query\">",
                                         "<arg_key>query</arg_key><arg_value>",
                                         "</arg_value>",
                                         "search(query='x',",
                                         "call:search{query:<|\"|>x<|\"|>",
                                         "<|channel|>",
                                         "<|message|>",
                                         "to=",
                                         "[ARGS]",
                                         "é",
                                         "`"};
  uint64_t state = 12345;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      text += bits[(state >> 33) % bits.size()];
    }
    const auto& c = cases()[static_cast<size_t>(round) % cases().size()];
    const Reply whole = parse(c.source, text, 4096);
    const Reply bytes = parse(c.source, text, 1);
    EXPECT_EQ(whole.content, bytes.content) << c.name << ": " << text;
    EXPECT_EQ(whole.thought, bytes.thought) << c.name << ": " << text;
    EXPECT_EQ(whole.calls.size(), bytes.calls.size()) << c.name << ": " << text;
  }
  EXPECT_EQ(parse("tools <tool_call>", "<tool_call>" + std::string(100000, '['), 1000).calls.size(), 0u);
}

TEST(LooseValue, MendsAndRefuses) {
  auto json = [](std::string_view text, LooseDialect dialect = LooseDialect::json) {
    const auto read = read_loose(text, dialect, true, true);
    return read.status == LooseRead::Status::done ? read.value.json : "broken";
  };
  EXPECT_EQ(json(R"( {"a": [1, 2.50, -3e7], "b": null} )"), R"({"a":[1,2.50,-3e7],"b":null})");
  EXPECT_EQ(json("{\"a\": \"line\nbreak\"}"), R"({"a":"line\nbreak"})");
  EXPECT_EQ(json(R"("\ud83d\ude00 \ud83d x")"), "\"\xf0\x9f\x98\x80 \xef\xbf\xbd x\"");
  EXPECT_EQ(json(R"({"a": [1, {"b": 2)"), R"({"a":[1,{"b":2}]})");
  EXPECT_EQ(json("[1, 2,]"), "[1,2]");
  EXPECT_EQ(json("{'a': (1, True)}", LooseDialect::python), R"({"a":[1,true]})");
  for (const char* bad :
       {"", "{", "{a: 1}", "{\"a\" 1}", "01", "nul", "\"open", "{\"a\":1,\"a\":2}", "{'a': 1}"}) {
    const auto read = read_loose(bad, LooseDialect::json, true, false);
    EXPECT_EQ(read.status, LooseRead::Status::broken) << bad;
  }
  EXPECT_EQ(read_loose("[1, 2", LooseDialect::json, false, true).status, LooseRead::Status::need_more);
  EXPECT_EQ(read_loose("12", LooseDialect::json, false, true).status, LooseRead::Status::need_more);
}

}  // namespace
}  // namespace mlxcel
