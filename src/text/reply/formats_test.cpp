// One row a wire format, none left out: two calls in a row, a call that is none, and what a grammar forces,
// in pieces of 1, 3 and 7 bytes and whole (features.md 7.2; cases.md H21 to H23).
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "text/reply/in_pieces.h"

namespace mlxcel {
namespace testing {

const char* const kTools = R"([
 {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
   "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}, "at": {"type": "object"}}}}},
 {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {
   "query": {"type": "string"}, "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}}}])";

ReadReply parse(const std::string& source, const std::string& text, size_t size, const std::string& tail,
                ThoughtMode mode, bool whole, const char* tools) {
  ReplyOptions options;
  options.format = reply_format(source);
  options.tools = std::make_shared<const ToolTypes>(tools);
  options.thought = mode;
  options.prompt_tail = tail;
  ReplyParser parser(std::move(options));
  ReadReply out;
  std::vector<ToolCall> streamed;  // as the pieces tell it
  auto take = [&](std::vector<ReplyPiece> pieces) {
    for (auto& piece : pieces) {
      if (piece.kind == ReplyPiece::Kind::content) out.content += piece.text;
      if (piece.kind == ReplyPiece::Kind::thought) out.thought += piece.text;
      if (piece.kind == ReplyPiece::Kind::call_open) {
        EXPECT_EQ(piece.index, static_cast<int>(streamed.size()));
        EXPECT_EQ(streamed.size(), out.calls.size()) << "two calls are open";
        streamed.push_back(piece.call);
      }
      if (piece.kind == ReplyPiece::Kind::arguments) {
        ASSERT_EQ(piece.index + 1, static_cast<int>(streamed.size()));
        EXPECT_FALSE(piece.text.empty());
        streamed.back().arguments += piece.text;
      }
      if (piece.kind == ReplyPiece::Kind::call) {
        EXPECT_EQ(piece.index, static_cast<int>(out.calls.size()));
        EXPECT_FALSE(piece.call.id.empty());
        ASSERT_EQ(streamed.size(), out.calls.size() + 1);
        EXPECT_EQ(streamed.back().id, piece.call.id);
        EXPECT_EQ(streamed.back().name, piece.call.name);
        EXPECT_EQ(streamed.back().arguments, piece.call.arguments);
        out.calls.push_back(std::move(piece.call));
      }
    }
  };
  for (size_t at = 0; at < text.size(); at += size)
    take(parser.push(std::string_view(text).substr(at, size)));
  take(parser.finish(whole));
  out.unparsed = parser.unparsed();
  EXPECT_EQ(streamed.size(), out.calls.size());
  for (const auto& call : out.calls)
    EXPECT_TRUE(!whole || nlohmann::json::parse(call.arguments, nullptr, false).is_object())
        << call.arguments;
  return out;
}

}  // namespace testing

namespace {

using testing::parse;
using testing::ReadReply;

constexpr size_t kSizes[] = {1, 3, 7, 1 << 20};
constexpr const char* kFirst = R"({"query":"x < y"})";
constexpr const char* kSecond = R"({"city":"Y","days":2})";

struct Row {
  const char* name;
  const char* source;     // what stands in the template
  std::string two;        // search, then get_weather
  std::string malformed;  // begins like a call
  bool warned = true;     // that it began like one
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"harmony", "tools <|channel|> <|message|>",
       "<|channel|>commentary to=functions.search <|constrain|>json<|message|>{\"query\": \"x < y\"}<|call|>"
       "<|start|>assistant<|channel|>commentary to=functions.get_weather "
       "<|constrain|>json<|message|>{\"city\": \"Y\", \"days\": 2}<|call|>",
       "<|channel|>commentary to=functions.search <|constrain|>json<|message|>no call at all<|call|>"},
      {"minimax", "tools <minimax:tool_call>",
       "<minimax:tool_call>\n<invoke name=\"search\">\n<parameter name=\"query\">x < "
       "y</parameter>\n</invoke>\n"
       "<invoke name=\"get_weather\">\n<parameter name=\"city\">Y</parameter>\n<parameter "
       "name=\"days\">2</parameter>\n</invoke>\n</minimax:tool_call>",
       "<minimax:tool_call>no call at all</minimax:tool_call>"},
      {"atem", "tools <atem:function_calls>",
       "<atem:function_calls><atem:invoke name=\"search\"><atem:parameter name=\"query\">x < "
       "y</atem:parameter></atem:invoke>\n<atem:invoke name=\"get_weather\"><atem:parameter "
       "name=\"city\">Y</atem:parameter><atem:parameter "
       "name=\"days\">2</atem:parameter></atem:invoke></atem:function_calls>",
       "<atem:function_calls>no call at all</atem:function_calls>"},
      {"atem", "tools <atem:function_calls> to=self",
       " to=search<|message|><atem:function_calls>\n<atem:invoke name=\"search\">\n<atem:parameter "
       "name=\"query\">x < "
       "y</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant "
       "to=get_weather<|message|>"
       "<atem:function_calls>\n<atem:invoke name=\"get_weather\">\n<atem:parameter "
       "name=\"city\">Y</atem:parameter>\n<atem:parameter name=\"days\">2</atem:parameter>\n</atem:invoke>\n"
       "</atem:function_calls><|eot|>",
       " to=search<|message|><atem:function_calls>no call at all</atem:function_calls><|eot|>"},
      {"minimax_m3", "tools ]<]minimax[>[ <mm:think>",
       "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"search\">]<]minimax[>[<query>x < "
       "y]<]minimax[>[</query>]<]minimax[>[</invoke>\n]<]minimax[>[<invoke "
       "name=\"get_weather\">]<]minimax[>[<city>Y"
       "]<]minimax[>[</city>]<]minimax[>[<days>2]<]minimax[>[</days>]<]minimax[>[</invoke>\n]<]minimax[>[</"
       "tool_call>",
       "]<]minimax[>[<tool_call>no call at all]<]minimax[>[</tool_call>"},
      {"dsml", "tools <｜DSML｜function_calls>",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"search\">\n<｜DSML｜parameter name=\"query\" "
       "string=\"true\">x < y</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"get_weather\">\n"
       "<｜DSML｜parameter name=\"city\" string=\"true\">Y</｜DSML｜parameter>\n<｜DSML｜parameter "
       "name=\"days\" "
       "string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       "<｜DSML｜function_calls>no call at all</｜DSML｜function_calls>"},
      {"dsml", "tools <｜DSML｜tool_calls>",
       "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"search\">\n<｜DSML｜parameter name=\"query\" "
       "string=\"true\">x < y</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"get_weather\">\n"
       "<｜DSML｜parameter name=\"city\" string=\"true\">Y</｜DSML｜parameter>\n<｜DSML｜parameter "
       "name=\"days\" "
       "string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       "<｜DSML｜tool_calls>no call at all</｜DSML｜tool_calls>"},
      {"minicpm", "tools <function name=\"",
       "<function name=\"search\"><param name=\"query\">x < y</param></function>\n"
       "<function name=\"get_weather\"><param name=\"city\">Y</param><param "
       "name=\"days\">2</param></function>",
       "<function nonsense>no call at all"},
      {"gemma4", "tools <|tool_call> <|channel>",
       "<|tool_call>call:search{query:<|\"|>x < "
       "y<|\"|>}<tool_call|><|tool_call>call:get_weather{city:<|\"|>Y<|\"|"
       ">,days:2}<tool_call|>",
       "<|tool_call>no call at all<tool_call|>"},
      {"function_gemma", "tools <start_function_call>",
       "<start_function_call>call:search{query:<escape>x < y<escape>}<end_function_call>"
       "<start_function_call>call:get_weather{city:<escape>Y<escape>,days:2}<end_function_call>",
       "<start_function_call>no call at all<end_function_call>"},
      {"kimi_k3", "tools <|open|>tools",
       "<|open|>tools<|sep|><|open|>call tool=\"search\" index=\"1\"<|sep|><|open|>argument key=\"query\" "
       "type=\"string\"<|sep|>x < y<|close|>argument<|sep|><|close|>call<|sep|><|open|>call "
       "tool=\"get_weather\" "
       "index=\"2\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>Y<|close|>argument<|sep|>"
       "<|open|>argument key=\"days\" type=\"number\"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|>"
       "<|close|>tools<|sep|>",
       "<|open|>tools<|sep|>no call at all<|close|>tools<|sep|>"},
      {"kimi", "tools <|tool_calls_section_begin|>",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{"
       "\"query\": "
       "\"x < "
       "y\"}<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{\"city\":"
       " "
       "\"Y\", \"days\": 2}<|tool_call_end|><|tool_calls_section_end|>",
       "<|tool_calls_section_begin|>no call at all<|tool_calls_section_end|>"},
      {"deepseek", "tools <｜tool▁calls▁begin｜> ```json",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{\"query\": \"x < "
       "y\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"
       "\"city\": \"Y\", "
       "\"days\": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜>no call at all<｜tool▁calls▁end｜>"},
      {"deepseek", "tools <｜tool▁calls▁begin｜>",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{\"query\": \"x < "
       "y\"}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Y\", \"days\": "
       "2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>nothing<｜tool▁call▁end｜><"
       "｜tool▁calls▁end｜>"},
      {"longcat", "tools <longcat_tool_call>",
       "<longcat_tool_call>search\n<longcat_arg_key>query</longcat_arg_key>\n<longcat_arg_value>x < "
       "y</longcat_arg_value>\n</longcat_tool_call>\n<longcat_tool_call>get_weather\n"
       "<longcat_arg_key>city</longcat_arg_key>\n<longcat_arg_value>Y</longcat_arg_value>\n"
       "<longcat_arg_key>days</longcat_arg_key>\n<longcat_arg_value>2</longcat_arg_value>\n</"
       "longcat_tool_call>",
       "<longcat_tool_call>no call at all</longcat_tool_call>"},
      {"seed", "tools <seed:tool_call>",
       "<seed:tool_call>\n<function=search>\n<parameter=query>x < "
       "y</parameter>\n</function>\n</seed:tool_call>\n"
       "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Y</parameter>\n<parameter=days>2</"
       "parameter>\n"
       "</function>\n</seed:tool_call>",
       "<seed:tool_call>no call at all</seed:tool_call>"},
      {"lfm2", "tools <|tool_call_start|>",
       "<|tool_call_start|>[search(query=\"x < y\"), get_weather(city='Y', days=2)]<|tool_call_end|>",
       "<|tool_call_start|>no call at all<|tool_call_end|>"},
      {"mistral", "tools [TOOL_CALLS]",
       "[TOOL_CALLS][{\"name\": \"search\", \"arguments\": {\"query\": \"x < y\"}}, {\"name\": "
       "\"get_weather\", "
       "\"arguments\": {\"city\": \"Y\", \"days\": 2}}]",
       "[TOOL_CALLS][nothing"},
      {"mistral", "tools [TOOL_CALLS] [ARGS]",
       "[TOOL_CALLS]search[ARGS]{\"query\": \"x < y\"}[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Y\", "
       "\"days\": 2}",
       "[TOOL_CALLS]search[ARGS]nothing"},
      {"command", "tools <|START_ACTION|>",
       "<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"search\", \"parameters\": {\"query\": "
       "\"x < "
       "y\"}},\n {\"tool_call_id\": \"1\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Y\", "
       "\"days\": "
       "2}}\n]<|END_ACTION|>",
       "<|START_ACTION|>no call at all<|END_ACTION|>"},
      {"command_r", "tools Action: ```json",
       "Action: ```json\n[{\"tool_name\": \"search\", \"parameters\": {\"query\": \"x < y\"}}, "
       "{\"tool_name\": "
       "\"get_weather\", \"parameters\": {\"city\": \"Y\", \"days\": 2}}]\n```",
       "Action: ```json\nno call at all\n```"},
      {"apertus", "tools <|tools_prefix|>",
       "<|tools_prefix|>[{\"search\": {\"query\": \"x < y\"}}, {\"get_weather\": {\"city\": \"Y\", \"days\": "
       "2}}]<|tools_suffix|>",
       "<|tools_prefix|>no call at all<|tools_suffix|>"},
      {"internlm", "tools <|action_start|>",
       "<|action_start|><|plugin|>\n{\"name\": \"search\", \"parameters\": {\"query\": \"x < "
       "y\"}}<|action_end|>\n"
       "<|action_start|><|plugin|>\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Y\", \"days\": "
       "2}}<|action_end|>",
       "<|action_start|><|plugin|>no call at all<|action_end|>"},
      {"nemotron", "tools <TOOLCALL>",
       "<TOOLCALL>[{\"name\": \"search\", \"arguments\": {\"query\": \"x < y\"}}, {\"name\": "
       "\"get_weather\", "
       "\"arguments\": {\"city\": \"Y\", \"days\": 2}}]</TOOLCALL>",
       "<TOOLCALL>no call at all</TOOLCALL>"},
      {"glm", "tools <tool_call> <arg_key>",
       "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x < y</arg_value>\n</tool_call>\n"
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Y</arg_value>\n<arg_key>days</arg_key>\n"
       "<arg_value>2</arg_value>\n</tool_call>",
       "<tool_call>no call at all</tool_call>"},
      {"qwen3_coder", "tools <tool_call>\n<function=",
       "<tool_call>\n<function=search>\n<parameter=query>\nx < y\n</parameter>\n</function>\n</tool_call>\n"
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nY\n</parameter>\n<parameter=days>\n2\n</"
       "parameter>\n"
       "</function>\n</tool_call>",
       "<tool_call>no call at all</tool_call>"},
      {"hermes", "tools <tool_call>",
       "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"x < "
       "y\"}}\n</tool_call>\n<tool_call>\n"
       "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Y\", \"days\": 2}}\n</tool_call>",
       "<tool_call>no call at all</tool_call>"},
      {"hunyuan", "tools <tool_calls>",
       "<tool_calls>[{\"name\": \"search\", \"arguments\": {\"query\": \"x < y\"}}, {\"name\": "
       "\"get_weather\", "
       "\"arguments\": {\"city\": \"Y\", \"days\": 2}}]</tool_calls>",
       "<tool_calls>no call at all</tool_calls>"},
      {"phi", "tools <|tool_call|> <|/tool_call|>",
       "<|tool_call|>[{\"name\": \"search\", \"arguments\": {\"query\": \"x < y\"}}, {\"name\": "
       "\"get_weather\", "
       "\"arguments\": {\"city\": \"Y\", \"days\": 2}}]<|/tool_call|>",
       "<|tool_call|>no call at all<|/tool_call|>"},
      {"granite", "tools <|tool_call|>",
       "<|tool_call|>[{\"name\": \"search\", \"arguments\": {\"query\": \"x < y\"}}, {\"name\": "
       "\"get_weather\", "
       "\"arguments\": {\"city\": \"Y\", \"days\": 2}}]",
       "<|tool_call|>no call at all"},
      {"functools", "tools functools[",
       "functools[{\"name\": \"search\", \"arguments\": {\"query\": \"x < y\"}}, {\"name\": \"get_weather\", "
       "\"arguments\": {\"city\": \"Y\", \"days\": 2}}]",
       "functools[no call at all]"},
      {"olmo", "tools <function_calls>",
       "<function_calls>search(query=\"x < y\")\nget_weather(city=\"Y\", days=2)</function_calls>",
       "<function_calls>no call at all</function_calls>"},
      {"pythonic", "tools [func_name1(", "[search(query=\"x < y\"), get_weather(city=\"Y\", days=2)]",
       "<|python_start|>no call at all<|python_end|>"},
      {"llama", "tools <|python_tag|>",
       "{\"name\": \"search\", \"parameters\": {\"query\": \"x < y\"}}; {\"name\": \"get_weather\", "
       "\"parameters\": "
       "{\"city\": \"Y\", \"days\": 2}}",
       "<|python_tag|>no call at all"},
  };
  return all;
}

/// Thought, then answer, as the families with headers and tags of their own write them.
TEST(Formats, ThoughtsOfTheOddOnes) {
  const struct {
    const char* source;
    std::string text, tail = "";
  } cases[] = {
      {"tools <atem:function_calls> to=self",
       " to=self<|message|>Let me see.<|eom|><|start|>assistant to=user<|message|>It is 4 < 5.<|eot|>",
       "<|start|>assistant"},
      {"tools <atem:function_calls> to=self",
       "Let me see.<|eom|><|start|>assistant to=user<|message|>It is 4 < 5.",
       "<|start|>assistant to=self<|message|>"},
      {"tools ]<]minimax[>[ <mm:think>", "<mm:think>Let me see.</mm:think>It is 4 < 5."},
      {"tools ]<]minimax[>[ <mm:think>", "Let me see.</mm:think>It is 4 < 5.", "ai\n<mm:think>"},
      {"tools '<|open|>' + tag",
       "Let me see.<|close|>think<|sep|><|open|>response<|sep|>It is 4 < 5.<|close|>response<|sep|>"
       "<|close|>message<|sep|>",
       "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>"},
  };
  for (const auto& c : cases) {
    for (const size_t size : kSizes) {
      const ReadReply reply = parse(c.source, c.text, size, c.tail);
      EXPECT_EQ(reply.thought, "Let me see.") << c.text << " in pieces of " << size;
      EXPECT_EQ(reply.content, "It is 4 < 5.") << c.text << " in pieces of " << size;
      EXPECT_TRUE(reply.calls.empty() && !reply.unparsed) << c.text;
    }
  }
}

TEST(Formats, TagsInsideTags) {
  const std::string n = "]<]minimax[>[";
  const std::string text = n + "<tool_call>\n" + n + "<invoke name=\"get_weather\">" + n + "<city>a\nb" + n +
                           "</city>" + n + "<at>" + n + "<lat>1.5" + n + "</lat>" + n + "<names>" + n +
                           "<item>x" + n + "</item>" + n + "<item>y" + n + "</item>" + n + "</names>" + n +
                           "</at>" + n + "</invoke>\n" + n + "</tool_call>";
  for (const size_t size : kSizes) {
    const ReadReply reply = parse("tools " + n, text, size);
    ASSERT_EQ(reply.calls.size(), 1u) << size << ": " << reply.content;
    EXPECT_EQ(reply.calls[0].arguments, R"({"city":"a\nb","at":{"lat":1.5,"names":["x","y"]}})") << size;
  }
  std::string deep = n + "<tool_call>" + n + "<invoke name=\"get_weather\">" + n + "<at>";
  for (int i = 0; i < 5000; ++i) deep += n + "<a>";
  const ReadReply refused = parse("tools " + n, deep, 4096);
  EXPECT_TRUE(refused.unparsed);  // and what came of it is text
  EXPECT_TRUE(deep.ends_with(refused.content.substr(refused.content.size() / 2)));
  EXPECT_GT(refused.content.size(), deep.size() / 2);
}

TEST(Formats, AFunctionWithJsonInside) {
  for (const size_t size : kSizes) {
    const ReadReply reply =
        parse("tools <function=",
              "<function=search>{\"query\": \"x < y\"}</function><function=get_weather>{}</function>", size);
    ASSERT_EQ(reply.calls.size(), 2u) << size << ": " << reply.content;
    EXPECT_EQ(reply.calls[0].arguments, kFirst);
    EXPECT_EQ(reply.content, "");
  }
}

void expect_call(const ToolCall& call, const char* name, const char* arguments, const std::string& where) {
  EXPECT_EQ(call.name, name) << where;
  EXPECT_EQ(call.arguments, arguments) << where;
  EXPECT_FALSE(call.id.empty()) << where;
}

TEST(Formats, NoneIsLeftOut) {
  std::set<std::string> here;
  for (const Row& row : rows()) {
    here.insert(row.name);
    EXPECT_EQ(reply_format(row.source)->name, row.name);
  }
  for (const auto& name : reply_format_names()) EXPECT_TRUE(here.contains(name)) << name;
}

TEST(Formats, TwoCallsInARow) {  // H22
  for (const Row& row : rows()) {
    for (const size_t size : kSizes) {
      const std::string where = std::string(row.name) + " in pieces of " + std::to_string(size);
      const ReadReply reply = parse(row.source, row.two, size);
      EXPECT_EQ(reply.content, "") << where;
      EXPECT_FALSE(reply.unparsed) << where;
      ASSERT_EQ(reply.calls.size(), 2u) << where;
      expect_call(reply.calls[0], "search", kFirst, where);
      expect_call(reply.calls[1], "get_weather", kSecond, where);
      EXPECT_NE(reply.calls[0].id, reply.calls[1].id) << where;
    }
  }
}

TEST(Formats, ACallThatIsNoneStaysText) {  // H21
  for (const Row& row : rows()) {
    for (const size_t size : kSizes) {
      const std::string where = std::string(row.name) + " in pieces of " + std::to_string(size);
      const ReadReply reply = parse(row.source, row.malformed, size);
      EXPECT_TRUE(reply.calls.empty()) << where;
      EXPECT_EQ(reply.unparsed, row.warned) << where;
      if (reply_format(row.source)->harmony)
        EXPECT_NE(reply.content.find("no call at all"), std::string::npos) << where << ": " << reply.content;
      else
        EXPECT_EQ(reply.content, row.malformed) << where;
    }
  }
}

TEST(Formats, WhatAGrammarForcesIsRead) {  // H23
  for (const Row& row : rows()) {
    const auto format = reply_format(row.source);
    const CallWriting& w = format->writing;
    const std::string first = w.before + "search" + w.between + kFirst + w.after;
    const std::string second = w.before + "get_weather" + w.between + kSecond + w.after;
    for (const size_t size : kSizes) {
      const std::string where = std::string(row.name) + " in pieces of " + std::to_string(size);
      const ReadReply one = parse(row.source, first, size);
      EXPECT_EQ(one.content, "") << where;
      ASSERT_EQ(one.calls.size(), 1u) << where << ": " << first;
      expect_call(one.calls[0], "search", kFirst, where);
      if (!w.several) continue;
      const ReadReply two = parse(row.source, first + w.separator + second, size);
      EXPECT_EQ(two.content, "") << where;
      ASSERT_EQ(two.calls.size(), 2u) << where;
      expect_call(two.calls[1], "get_weather", kSecond, where);
    }
  }
}

// Where nobody forces a call, what tells it is what the model's own calls begin with.
TEST(Formats, ACallIsToldByItsOpening) {
  for (const Row& row : rows()) {
    const auto format = reply_format(row.source);
    const CallWriting& w = format->writing;
    const std::string name = row.name;
    EXPECT_TRUE(w.before.starts_with(w.opening)) << name;
    EXPECT_EQ(w.at_head, name == "llama" || name == "pythonic") << name;
    EXPECT_EQ(w.opening.empty(), w.at_head || name == "minicpm") << name;
    EXPECT_NE(w.opening.size(), 1u) << name;
  }
}

}  // namespace
}  // namespace mlxcel
