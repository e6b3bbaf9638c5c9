// Constrained answers through the engine: gates, stop, neighbours. The model is the fake one, over a
// vocabulary of bytes below 89 and some words.
#include "engine/loop/gate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/loop/pattern.h"

namespace mlxcel {
namespace {

// Byte-level BPE of printable ASCII with a special end and a reasoning tag in two tokens.
std::shared_ptr<const Tokenizer> tokenizer() {
  std::string vocab;
  for (int c = 33; c < 127; ++c)
    vocab += std::string(c > 33 ? ",\"" : "\"") + (c == '"' || c == '\\' ? "\\" : "") + static_cast<char>(c) +
             "\":" + std::to_string(c - 33);
  return Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[{"id":94,"content":"<|end|>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false},
{"id":95,"content":"</thi","special":false,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false},{"id":96,"content":"nk>","special":false,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}],
"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},
"model":{"type":"BPE","vocab":{)" +
      vocab + R"(},"merges":[]}})");
}

class GateTest : public ::testing::Test {
 protected:
  static constexpr TokenId kEnd = 94;
  std::shared_ptr<const Tokenizer> tokenizer_ = tokenizer();
  Grammars grammars_{tokenizer_, 97, {kEnd}};
  std::shared_ptr<const TokenBytes> bytes_ = [this] {
    auto all = std::make_shared<TokenBytes>();
    for (TokenId id = 0; id < 97; ++id) all->push_back(tokenizer_->token_text(id));
    return all;
  }();

  static TokenId id(char c) { return c - 33; }
  Gate gate(GrammarUse use, const char* regex = "[0-9]{2}") {
    use.grammar = grammars_.compile({.kind = Constraint::Kind::regex, .text = regex});
    const TokenId eos[] = {kEnd};
    return Gate(use, bytes_, eos, 97);
  }
  static bool allows(Gate& gate, TokenId token) {
    const TokenMask mask = gate.mask();
    return mask.empty() || (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1u) != 0;
  }
};

TEST_F(GateTest, HoldsFromTheStart) {
  Gate g = gate({});
  EXPECT_FALSE(allows(g, id('a')));
  EXPECT_FALSE(allows(g, kEnd));
  g.accept(id('1'));
  EXPECT_FALSE(g.complete());
  g.accept(id('2'));
  EXPECT_TRUE(g.complete());
}

TEST_F(GateTest, TheThoughtIsFreeAndDoesNotEndTheAnswer) {
  Gate g = gate({.after = "</think>"});
  EXPECT_TRUE(allows(g, id('a')));
  EXPECT_FALSE(allows(g, kEnd));
  for (TokenId t : {id('a'), id('7'), TokenId{95}, id('x'), TokenId{95}}) g.accept(t);
  EXPECT_TRUE(allows(g, id('a')));
  g.accept(96);
  EXPECT_FALSE(allows(g, id('a')));
  EXPECT_TRUE(allows(g, id('1')));
}

TEST_F(GateTest, TriggersStartInsideTheirOwnText) {
  Gate g = gate({.triggers = {{.text = "f("}}}, "f\\([0-9]\\)");
  EXPECT_TRUE(allows(g, kEnd));  // a lazy grammar may never begin
  for (char c : std::string("say:f")) g.accept(id(c));
  EXPECT_TRUE(allows(g, id('!')));
  g.accept(id('('));
  EXPECT_FALSE(allows(g, id('!')));
  EXPECT_TRUE(allows(g, id('4')));
  g.accept(id('4'));
  g.accept(id(')'));
  EXPECT_TRUE(g.complete());
}

TEST_F(GateTest, TokenTriggersAndTheThoughtTogether) {
  Gate g =
      gate({.after = "</think>", .triggers = {{.kind = GrammarUse::Trigger::Kind::token, .token = id('#')}}},
           "#[0-9]");
  g.accept(id('#'));  // inside the thought
  EXPECT_TRUE(allows(g, id('a')));
  g.accept(95);
  g.accept(96);
  EXPECT_TRUE(allows(g, id('a')));
  g.accept(id('#'));
  EXPECT_FALSE(allows(g, id('a')));
}

TEST_F(GateTest, TriggersThatCannotBeginAreRefused) {
  EXPECT_THROW(gate({.triggers = {{.text = "no"}}}), Error);
  EXPECT_THROW(gate({.triggers = {{.text = ""}}}), Error);
  EXPECT_THROW(gate({.triggers = {{.kind = GrammarUse::Trigger::Kind::token, .token = 97}}}), Error);
}

TEST(Loops, PatternsAtTheEnd) {
  const auto found = [](std::vector<TokenId> answer, int least, int most, int count) {
    return goes_in_circles(answer, {.max_pattern = most, .min_pattern = least, .min_count = count});
  };
  EXPECT_TRUE(found({9, 1, 2, 1, 2, 1, 2}, 1, 4, 3));
  EXPECT_FALSE(found({9, 1, 2, 1, 2, 1, 2}, 1, 4, 4));
  EXPECT_FALSE(found({9, 1, 2, 1, 2, 1, 2}, 3, 4, 2));
  EXPECT_FALSE(found({1, 2, 1, 2, 1, 2, 9}, 1, 4, 2));
  EXPECT_TRUE(found({5, 5}, 1, 1, 2));
  EXPECT_FALSE(found({5, 5, 5, 5}, 1, 0, 2));
  EXPECT_FALSE(found({}, 1, 4, 2));
}

}  // namespace
}  // namespace mlxcel
