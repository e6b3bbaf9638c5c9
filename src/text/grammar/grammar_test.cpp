#include "text/grammar/grammar.h"
#include "text/grammar/call_or_form.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <chrono>

#include "base/error.h"
#include "text/testdata.h"

namespace mlxcel {
namespace {

// A vocabulary of single bytes, in byte-level spelling, with two special tokens.
std::shared_ptr<const Tokenizer> byte_tokenizer() {
  std::string vocab;
  int next = 0;
  const auto add = [&](uint32_t code) {
    std::string spelled;
    if (code < 0x80)
      spelled = std::string(1, static_cast<char>(code));
    else
      spelled = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
    if (spelled == "\"" || spelled == "\\") spelled = "\\" + spelled;
    vocab += fmt::format("{}\"{}\":{}", next == 0 ? "" : ",", spelled, next);
    ++next;
  };
  uint32_t extra = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    add(printable ? byte : extra++);
  }
  return Tokenizer::from_json(fmt::format(
      R"({{"version":"1.0","added_tokens":[{{"id":256,"content":"<|end|>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}},{{"id":257,"content":"<call>","special":false,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}}],
"pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}},"decoder":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}},
"model":{{"type":"BPE","vocab":{{{}}},"merges":[]}}}})",
      vocab));
}

class GrammarTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> tokenizer_ = byte_tokenizer();
  Grammars grammars_{tokenizer_, 258, {256}};

  bool allows(Matcher& m, TokenId id) {
    const auto words = m.mask();
    return (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1u) != 0;
  }
  // Whether the whole of `text` obeys: every byte in the mask, and an end where it ends.
  bool obeys(const Grammar& grammar, std::string_view text) {
    Matcher m = grammar.matcher();
    for (const char c : text) {
      const TokenId id = static_cast<unsigned char>(c);
      if (m.complete() || !allows(m, id)) return false;
      m.accept(id);
    }
    return m.complete() || allows(m, 256);
  }
  bool obeys(Constraint::Kind kind, const std::string& form, std::string_view text) {
    return obeys(*grammars_.compile({.kind = kind, .text = form}), text);
  }
  std::string refusal(Constraint c) {
    try {
      grammars_.compile(c);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_request) << error.what();
      EXPECT_EQ(error.param(), c.param);
      return error.what();
    }
    ADD_FAILURE() << "accepted: " << c.text;
    return "";
  }
};

using Kind = Constraint::Kind;

TEST_F(GrammarTest, JsonObjects) {
  EXPECT_TRUE(obeys(Kind::json_object, "", R"({"a": [1, null, {"b": "c"}]})"));
  EXPECT_TRUE(obeys(Kind::json_object, "", "{}"));
  for (const char* bad : {"[1]", "1", "{\"a\"}", "{\"a\":1", "text", "{\"a\":1}}", ""})
    EXPECT_FALSE(obeys(Kind::json_object, "", bad)) << bad;
}

TEST_F(GrammarTest, BlanksBetweenTokensOfJsonAreBounded) {
  const std::string deep(32, ' ');
  for (const std::string& good :
       {std::string("{ \"a\" :  1 }"), "{\n" + deep + "\"a\": 1\r\n}", std::string("{\n\n\t\"a\":\t1}"),
        std::string("{\"a\": [\n  1,\n  2\n]\n}")})
    EXPECT_TRUE(obeys(Kind::json_object, "", good)) << good;
  for (const std::string& bad : {std::string("{   \"a\": 1}"), "{\n" + deep + " \"a\": 1}",
                                 std::string("{\n\n\n\"a\": 1}"), std::string("{\"a\":     1}")})
    EXPECT_FALSE(obeys(Kind::json_object, "", bad)) << bad;
}

TEST_F(GrammarTest, SchemaKeywordsAreEnforced) {
  struct Case {
    const char *schema, *good, *bad;
  };
  const Case cases[] = {
      {R"({"type":"string","enum":["x","y"]})", "\"y\"", "\"z\""},
      {R"({"const":7})", "7", "8"},
      {R"({"type":["integer","null"]})", "null", "true"},
      {R"({"type":"integer","minimum":3,"exclusiveMaximum":12})", "11", "12"},
      {R"({"type":"integer","multipleOf":5})", "35", "36"},
      {R"({"type":"string","minLength":2,"maxLength":3})", "\"abc\"", "\"abcd\""},
      {R"({"type":"string","pattern":"^a+b$"})", "\"aab\"", "\"aac\""},
      {R"({"type":"string","format":"date"})", "\"2024-02-29\"", "\"2024-13-01\""},
      {R"({"type":"string","format":"uuid"})", "\"123e4567-e89b-12d3-a456-426614174000\"", "\"123e4567\""},
      {R"({"type":"string","format":"ipv4"})", "\"10.0.0.255\"", "\"10.0.0.256\""},
      {R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2})", "[true,false]", "[]"},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false,"minItems":2})", "[1,2]",
       "[1,2,3]"},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},"required":["a"],"additionalProperties":false})",
       R"({"a":1,"b":null})", R"({"b":null})"},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"required":["a","b"],"additionalProperties":false})",
       R"({"a":1,"b":2})", R"({"b":2,"a":1})"},  // the schema's order
      {R"({"type":"object","additionalProperties":{"type":"integer"}})", R"({"k":5})", R"({"k":"v"})"},
      {R"({"anyOf":[{"type":"integer"},{"type":"string"}]})", "\"s\"", "[]"},
      {R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", "4", "null"},
      {R"({"allOf":[{"type":"integer","minimum":2},{"maximum":3}]})", "3", "4"},
      {R"({"$defs":{"t":{"type":"object","properties":{"n":{"anyOf":[{"$ref":"#/$defs/t"},{"type":"null"}]}},"required":["n"],"additionalProperties":false}},"$ref":"#/$defs/t"})",
       R"({"n":{"n":null}})", R"({"n":1})"},
      {R"({"type":"integer","title":"T","description":"d","default":1,"x-order":3})", "1", "\"1\""},
  };
  for (const auto& c : cases) {
    EXPECT_TRUE(obeys(Kind::json_schema, c.schema, c.good)) << c.schema << " should take " << c.good;
    EXPECT_FALSE(obeys(Kind::json_schema, c.schema, c.bad)) << c.schema << " should not take " << c.bad;
  }
}

TEST_F(GrammarTest, H27WhatCannotBeEnforcedNamesItsPlace) {
  struct Case {
    const char *schema, *place;
  };
  const Case cases[] = {
      {R"({"type":"object","properties":{"a":{"type":"string","pattern":"("}}})", "/properties/a/pattern"},
      {R"({"type":"object","properties":{"a/b":{"$ref":"#/$defs/gone"}}})", "/properties/a~1b/$ref"},
      {R"({"$ref":"http://elsewhere/schema"})", "/$ref"},
      {R"({"type":"array","items":{"type":"string","format":"color"}})", "/items/format"},
      {R"({"type":"array","uniqueItems":true})", "/uniqueItems"},
      {R"({"properties":{"a":{"type":"text"}}})", "/properties/a/type"},
      {R"({"not":{"type":"string"}})", "/not"},
      {R"({"type":"number","multipleOf":0.1})", "/multipleOf"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "/oneOf/1"},
      {R"({"type":"string","minLength":-1})", "/minLength"},
      {R"({"type":"string","pattern":"^(?=a).*$"})", "/pattern"},
      {R"({"properties":{"x":5}})", "/properties/x"},
      {R"([1])", "/"},
  };
  for (const auto& c : cases) {
    const std::string said =
        refusal({.kind = Kind::json_schema, .text = c.schema, .param = "response_format"});
    EXPECT_NE(said.find(std::string("\"") + c.place + "\""), std::string::npos) << c.schema << ": " << said;
  }
  refusal({.kind = Kind::json_schema, .text = "{"});
  refusal({.kind = Kind::json_schema, .text = std::string(1000, '[')});
  refusal({.kind = Kind::json_schema, .text = R"({"enum":[")" + std::string(70000, 'x') + "\"]}"});
  std::string deep = "{\"type\":\"integer\"}";
  for (int i = 0; i < 40; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  EXPECT_NE(refusal({.kind = Kind::json_schema, .text = deep}).find("deeper"), std::string::npos);
  // The pattern of H27 itself is one that can be enforced.
  EXPECT_TRUE(obeys(Kind::json_schema, R"({"type":"string","pattern":"^hello there indeed\\!$"})",
                    "\"hello there indeed!\""));
}

TEST_F(GrammarTest, StrictSchemasAreClosedAndComplete) {
  const auto strict = [](const char* schema) {
    return Constraint{.kind = Kind::json_schema, .text = schema, .strict = true};
  };
  EXPECT_NE(refusal(strict(R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a"]})"))
                .find("additionalProperties"),
            std::string::npos);
  EXPECT_NE(
      refusal(strict(R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":false})"))
          .find("/properties/a"),
      std::string::npos);
  EXPECT_TRUE(grammars_.compile(strict(
      R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a"],"additionalProperties":false})")));
}

TEST_F(GrammarTest, RegexesAreAnchored) {
  EXPECT_TRUE(obeys(Kind::regex, "(yes|no)!?", "no!"));
  for (const char* bad : {"maybe", "yes!!", " yes", ""})
    EXPECT_FALSE(obeys(Kind::regex, "(yes|no)!?", bad)) << bad;
  refusal({.kind = Kind::regex, .text = "(a"});
  refusal({.kind = Kind::regex, .text = R"((a)\1)"});
  refusal({.kind = Kind::regex, .text = ""});
}

TEST_F(GrammarTest, GbnfIsExact) {
  struct Case {
    const char* grammar;
    std::vector<const char*> good, bad;
  };
  const Case cases[] = {
      {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"y", "yesno", ""}},
      // A longest-match lexer would take "ab" and then miss "bc".
      {"root ::= (\"a\" | \"ab\") \"bc\"", {"abc", "abbc"}, {"ab", "abbbc"}},
      {"root ::= [a-c]{2,3} [^0-9]+ # comment\n", {"abX", "abcXY"}, {"aX1", "ab", "ab1"}},
      {"root ::= item (\",\" item)*\nitem ::= [0-9]+ | \"-\"\n", {"1", "12,-,3"}, {"1,", ",1"}},
      {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"((x)", "()", "xx"}},
      {"root ::= expr\nexpr ::= term (\"+\" expr)?\nterm ::= [0-9] | \"(\" expr \")\"",
       {"1+2", "(1+2)+3"},
       {"1+", "(1"}},
      {"root ::= \"\\x41\\u00e9\\n\" .", {"A\xC3\xA9\nz"}, {"A\xC3\xA9z"}},
      {"root ::= a?\na ::= \"q\" a | \"\"", {"", "qq"}, {"x"}},
      {"root ::= \"go\" <[257]> \"x\"", {}, {"go<call>x", "gox"}},
  };
  for (const auto& c : cases) {
    const auto grammar = grammars_.compile({.kind = Kind::gbnf, .text = c.grammar});
    for (const char* text : c.good)
      EXPECT_TRUE(obeys(*grammar, text)) << c.grammar << " should take " << text;
    for (const char* text : c.bad)
      EXPECT_FALSE(obeys(*grammar, text)) << c.grammar << " should not take " << text;
  }
  Matcher m = grammars_.compile({.kind = Kind::gbnf, .text = "root ::= \"g\" <call> \"x\""})->matcher();
  m.accept('g');
  EXPECT_TRUE(allows(m, 257));
  EXPECT_FALSE(allows(m, 'x'));
  m.accept(257);
  EXPECT_TRUE(allows(m, 'x'));
}

TEST_F(GrammarTest, GbnfFaultsNameLineAndColumn) {
  struct Case {
    const char *grammar, *said;
  };
  const Case cases[] = {
      {"root ::= root \"a\" | \"b\"", "left recursion"},
      {"root ::= a\na ::= b? a \"x\"\nb ::= \"q\"", "left recursion"},
      {"start ::= \"a\"", "root"},
      {"root ::= \"a\"\n\nroot ::= missing", "line 3, column 1"},
      {"root ::= \"a\" missing", "line 1, column 14: there is no rule called missing"},
      {"root ::= \"abc", "ends inside"},
      {"root ::= (\"a\"", "\")\""},
      {"root ::= [z-a]", "ends before"},
      {"root ::= \"a\"{5000}", "more than"},
      {"root ::= (\"a\"{100}){100}", "repetitions inside"},
      {"root ::= \"a\"{3,2}", "under its least"},
      {"root ::= <[999]>", "no token"},
      {"root ::= <nothing>", "no token"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root = \"a\"", "::="},
      {"", "empty"},
  };
  for (const auto& c : cases) {
    const std::string said = refusal({.kind = Kind::gbnf, .text = c.grammar});
    EXPECT_NE(said.find(c.said), std::string::npos) << c.grammar << ": " << said;
  }
  std::string deep = "root ::= ";
  for (int i = 0; i < 5000; ++i) deep += "(";
  EXPECT_NE(refusal({.kind = Kind::gbnf, .text = deep}).find("nested"), std::string::npos);
}

TEST_F(GrammarTest, LarkPassesThroughAndFaultsAreToldApart) {
  EXPECT_TRUE(obeys(Kind::lark, "start: \"a\" /[0-9]+/", "a12"));
  EXPECT_FALSE(obeys(Kind::lark, "start: \"a\" /[0-9]+/", "b"));
  refusal({.kind = Kind::lark, .text = "start: missing"});
}

TEST_F(GrammarTest, H23ForcedCallsKeepToolAndArgumentsTogether) {
  const ToolForm tools[] = {
      {"get_weather",
       R"({"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false})"},
      {"stop", ""}};
  const ToolFrame frame{"<call>{\"name\": \"", "\", \"arguments\": ", "}</call>", "\n"};
  const auto one = grammars_.compile(tool_call_constraint(tools, frame, false, "tools"));
  const std::string weather = R"(<call>{"name": "get_weather", "arguments": {"city": "Rome"}}</call>)";
  const std::string stop = R"(<call>{"name": "stop", "arguments": {}}</call>)";
  EXPECT_TRUE(obeys(*one, weather));
  EXPECT_TRUE(obeys(*one, stop));
  EXPECT_FALSE(obeys(*one, weather + "\n" + stop));
  EXPECT_FALSE(obeys(*one, R"(<call>{"name": "other", "arguments": {}}</call>)"));
  EXPECT_FALSE(obeys(*one, R"(<call>{"name": "get_weather", "arguments": {}}</call>)"));
  EXPECT_FALSE(obeys(*one, "Sure."));
  EXPECT_TRUE(
      obeys(*grammars_.compile(tool_call_constraint(tools, frame, true, "tools")), weather + "\n" + stop));
  const auto named = grammars_.compile(tool_call_constraint(std::span(tools).last(1), frame, false, "tools"));
  EXPECT_FALSE(obeys(*named, weather));
}

TEST_F(GrammarTest, ACallOrTextInTheForm) {
  const ToolForm tools[] = {{"stop", ""}};
  const ToolFrame frame{"<call>{\"name\": \"", "\", \"arguments\": ", "}</call>", "\n"};
  const std::string stop = R"(<call>{"name": "stop", "arguments": {}}</call>)";
  auto either = [&](const Constraint& form) {
    return grammars_.compile(call_or_form_constraint(tools, frame, false, form, "tools"));
  };
  const auto schema = either(
      {.kind = Kind::json_schema,
       .text =
           R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false})"});
  EXPECT_TRUE(obeys(*schema, stop));
  EXPECT_TRUE(obeys(*schema, R"({"a": 12})"));
  EXPECT_FALSE(obeys(*schema, R"({"b": 12})"));
  EXPECT_FALSE(obeys(*schema, "Sure."));
  EXPECT_FALSE(obeys(*schema, R"(<call>{"name": "other", "arguments": {}}</call>)"));
  const auto object = either({});
  EXPECT_TRUE(obeys(*object, R"({"b": [1]})"));
  EXPECT_FALSE(obeys(*object, "[1]"));
  const auto pattern = either({.kind = Kind::regex, .text = "a/b\\d+"});
  EXPECT_TRUE(obeys(*pattern, "a/b12"));
  EXPECT_TRUE(obeys(*pattern, stop));
  EXPECT_FALSE(obeys(*pattern, "a/b"));
  EXPECT_THROW(either({.kind = Kind::lark, .text = "start: \"a\""}), Error);
}

TEST_F(GrammarTest, ACallOrTextThatBeginsOtherwise) {
  const ToolForm tools[] = {
      {"weather",
       R"({"type":"object","properties":{"city":{"enum":["Oslo"]}},"required":["city"],"additionalProperties":false})"}};
  for (const char* head : {"{", "["}) {
    const ToolFrame frame{std::string(head) + "\"name\": \"", "\", \"parameters\": ", "}", "; "};
    const auto grammar = grammars_.compile(call_or_text_constraint(tools, frame, true, "tools"));
    const std::string call = std::string(head) + R"("name": "weather", "parameters": {"city":"Oslo"}})";
    EXPECT_TRUE(obeys(*grammar, call));
    EXPECT_TRUE(obeys(*grammar, call + "; " + call));
    for (const char* text : {"", "No.", "\n\n It {rains} [there].\n", "<b>no</b>", "<", "a", "\"{", "Å\n{"})
      EXPECT_TRUE(obeys(*grammar, text)) << head << text;
    for (const std::string& text : {std::string(head), std::string(head) + "\"name\": \"other\"", " " + call,
                                    std::string("<|python_tag|>"), call + " and text"})
      EXPECT_FALSE(obeys(*grammar, text)) << text;
  }
}

TEST_F(GrammarTest, MatchersShareNothing) {  // H7
  const auto grammar = grammars_.compile({.kind = Kind::regex, .text = "ab|cd"});
  Matcher first = grammar->matcher();
  first.accept('a');
  EXPECT_FALSE(allows(first, 'c'));
  Matcher second = grammar->matcher();
  EXPECT_TRUE(allows(second, 'c'));
  EXPECT_FALSE(allows(second, 'b'));
  second.accept('c');
  EXPECT_TRUE(allows(first, 'b'));
  const TokenId drafts[] = {'b', 'x'};
  EXPECT_EQ(first.would_take(drafts), 1u);
  EXPECT_TRUE(allows(first, 'b'));
  first.accept('b');
  EXPECT_TRUE(first.complete());
  EXPECT_FALSE(second.accept_text("x"));
  EXPECT_TRUE(second.accept_text("d"));
  EXPECT_TRUE(second.complete());
  EXPECT_THROW(grammar->matcher().accept('z'), Error);
}

TEST_F(GrammarTest, SpecialTokensNeverMatchText) {
  Matcher m = grammars_.compile({.kind = Kind::regex, .text = ".*"})->matcher();
  EXPECT_TRUE(allows(m, 257));  // <call> is ordinary text
  EXPECT_TRUE(allows(m, 256));  // the end, where the text may end
  Matcher more = grammars_.compile({.kind = Kind::regex, .text = ".+"})->matcher();
  EXPECT_FALSE(allows(more, 256));
}

// The promise: a mask in less than 50 us at 49k tokens. Timing depends on the machine, so the bound is loose
// and the figure is printed.
TEST(GrammarCost, MasksOfARealVocabulary) {
  const auto file = testdata::cached("HuggingFaceTB/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!file) GTEST_SKIP() << "SmolLM2-135M-Instruct.Q4_1.gguf is not in the test cache";
  const Checkpoint checkpoint = open_checkpoint(*file);
  const auto tokenizer = Tokenizer::load(checkpoint);
  const Grammars grammars(tokenizer, tokenizer->vocab_size(), {*tokenizer->eos()});
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto us = [](auto d) { return std::chrono::duration<double, std::micro>(d).count(); };
  auto start = now();
  const auto grammar = grammars.compile(
      {.kind = Kind::json_schema,
       .text =
           R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}},"required":["name","age","tags"],"additionalProperties":false})"});
  const double built = us(now() - start);
  const std::string text =
      R"({"name": "Ada Lovelace of the analytical engine", "age": 36, "tags": ["mathematics", "poetical science", "notes on looms"]})";
  double total = 0, worst = 0;
  int masks = 0;
  for (int round = 0; round < 3; ++round) {
    Matcher m = grammar->matcher();
    for (const TokenId id : tokenizer->encode(text, false)) {
      start = now();
      const auto words = m.mask();
      const double cost = us(now() - start);
      ASSERT_TRUE(words[static_cast<size_t>(id) / 32] >> (id % 32) & 1u) << tokenizer->token_text(id);
      m.accept(id);
      total += cost;
      worst = std::max(worst, cost);
      ++masks;
    }
    EXPECT_TRUE(m.complete());
  }
  fmt::print("tables and compile {:.0f} ms; {} masks, {:.1f} us on average, {:.0f} us at most\n", built / 1e3,
             masks, total / masks, worst);
  EXPECT_LT(total / masks, 2000.0);
}

}  // namespace
}  // namespace mlxcel
