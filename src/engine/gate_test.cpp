// Constrained answers through the engine: gates, stop, neighbours. The model is the fake one, over a
// vocabulary of bytes below 89 and some words.
#include "engine/loop/gate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/loop/pattern.h"

namespace mlxcel {
namespace {

std::string added(const std::vector<std::string>& texts) {
  std::string out;
  for (size_t i = 0; i < texts.size(); ++i)
    out += std::string(i == 0 ? "" : ",") + R"({"id":)" + std::to_string(97 + i) + R"(,"content":")" +
           texts[i] +
           R"(","special":false,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false})";
  return out;
}

// Byte-level BPE of printable ASCII with a special end and a reasoning tag in two tokens.
std::shared_ptr<const Tokenizer> tokenizer() {
  std::string vocab;
  for (int c = 33; c < 127; ++c)
    vocab += std::string(c > 33 ? ",\"" : "\"") + (c == '"' || c == '\\' ? "\\" : "") + static_cast<char>(c) +
             "\":" + std::to_string(c - 33);
  return Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[{"id":94,"content":"<|end|>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false},
{"id":95,"content":"</thi","special":false,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false},{"id":96,"content":"nk>","special":false,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false},
)" + added({"nk>4", "nk>b", "(4", "(b", "f(b", "f(4)", "a.f("}) +
      R"(],
"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},
"model":{"type":"BPE","vocab":{)" +
      vocab + R"(},"merges":[]}})");
}

class GateTest : public ::testing::Test {
 protected:
  static constexpr TokenId kEnd = 94;
  std::shared_ptr<const Tokenizer> tokenizer_ = tokenizer();
  static constexpr int kVocab = 104;
  Grammars grammars_{tokenizer_, kVocab, {kEnd}};
  std::shared_ptr<const TokenBytes> bytes_ = [this] {
    auto all = std::make_shared<TokenBytes>();
    for (TokenId id = 0; id < kVocab; ++id) all->push_back(tokenizer_->token_text(id));
    return all;
  }();

  static TokenId id(char c) { return c - 33; }
  Gate gate(GrammarUse use, const char* regex = "[0-9]{2}") {
    use.grammar = grammars_.compile({.kind = Constraint::Kind::regex, .text = regex});
    const TokenId eos[] = {kEnd};
    return Gate(use, bytes_, eos, kVocab);
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

// A token may end the thought or the trigger and go on: only as the grammar does.
TEST_F(GateTest, WhatDoesNotFitBehindAnOpeningInTheSameTokenIsNotOffered) {
  constexpr TokenId kThought4 = 97, kThoughtB = 98, kOpen4 = 99, kOpenB = 100, kWholeB = 101, kWhole4 = 102,
                    kInside = 103;
  Gate thought = gate({.after = "</think>"});
  EXPECT_TRUE(allows(thought, kThoughtB));  // nothing to end yet
  thought.accept(95);
  EXPECT_TRUE(allows(thought, kThought4));
  EXPECT_FALSE(allows(thought, kThoughtB));
  EXPECT_FALSE(allows(thought, kEnd));
  EXPECT_TRUE(allows(thought, 96));
  thought.accept(kThought4);
  EXPECT_FALSE(allows(thought, id('b')));
  thought.accept(id('2'));
  EXPECT_TRUE(thought.complete());

  Gate call = gate({.triggers = {{.text = "f("}}}, "f\\([0-9]\\)");
  EXPECT_TRUE(allows(call, kOpenB));
  EXPECT_FALSE(allows(call, kWholeB));
  EXPECT_TRUE(allows(call, kWhole4));
  EXPECT_TRUE(allows(call, kInside));
  EXPECT_TRUE(allows(call, kEnd));
  call.accept(id('f'));
  EXPECT_FALSE(allows(call, kOpenB));
  EXPECT_TRUE(allows(call, kOpen4));
  EXPECT_TRUE(allows(call, kWhole4));
  Gate whole = gate({.triggers = {{.text = "f("}}}, "f\\([0-9]\\)");
  whole.accept(kWhole4);
  EXPECT_TRUE(whole.complete());
  call.accept(kOpen4);
  call.accept(id(')'));
  EXPECT_TRUE(call.complete());

  // Behind a thought that a trigger follows, the token may hold both.
  Gate both = gate({.after = "</think>", .triggers = {{.text = ">"}}}, ">b");
  both.accept(95);
  EXPECT_TRUE(allows(both, kThoughtB));
  EXPECT_TRUE(allows(both, kThought4));
}

TEST_F(GateTest, OfTwoOpeningsInATokenTheFirstDecides) {
  // "(b" ends "f(" where f stands, and is nothing where it does not.
  Gate g = gate({.triggers = {{.text = "f("}, {.text = "(b"}}}, "f\\([0-9]\\)|\\(b");
  EXPECT_TRUE(allows(g, 100));
  g.accept(id('f'));
  EXPECT_FALSE(allows(g, 100));
  EXPECT_TRUE(allows(g, 99));
}

TEST_F(GateTest, TriggersThatCannotBeginAreRefused) {
  EXPECT_THROW(gate({.triggers = {{.text = "no"}}}), Error);
  EXPECT_THROW(gate({.triggers = {{.text = ""}}}), Error);
  EXPECT_THROW(gate({.triggers = {{.kind = GrammarUse::Trigger::Kind::token, .token = kVocab}}}), Error);
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
