#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace mlxcel {
namespace {

struct Seen {
  std::string text;
  bool stopped = false;
  std::string stop;
  bool operator==(const Seen&) const = default;
};

/// Feeds `text` cut where `mask` has a bit.
Seen feed(const std::vector<std::string>& stops, const std::string& text, uint64_t mask) {
  StopMatcher matcher(stops);
  Seen seen;
  std::string piece;
  const auto push = [&] {
    const auto result = matcher.push(piece);
    seen.text += result.text;
    if (result.stopped) {
      seen.stopped = true;
      seen.stop = result.stop;
    }
    piece.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    piece += text[i];
    if (mask >> (i % 64) & 1) push();
  }
  push();
  seen.text += matcher.finish();
  return seen;
}

void expect_every_cut(const std::vector<std::string>& stops, const std::string& text, const Seen& want) {
  const size_t cuts = size_t{1} << std::min<size_t>(text.size(), 14);
  for (size_t mask = 0; mask < cuts; ++mask) ASSERT_EQ(feed(stops, text, mask).text, want.text) << mask;
  for (size_t mask = 0; mask < cuts; ++mask) ASSERT_EQ(feed(stops, text, mask), want) << mask;
}

TEST(StopMatcher, EveryWayToCut) {
  expect_every_cut({"beta gamma"}, "alphabeta gamma delta", {"alpha", true, "beta gamma"});
  expect_every_cut({"beta gamma"}, "alphabeta gam", {"alphabeta gam", false, ""});
  expect_every_cut({"aab"}, "aaaaab!", {"aaa", true, "aab"});
  expect_every_cut({"ab", "abc"}, "xabcy", {"x", true, "ab"});
  expect_every_cut({"abcd", "bc"}, "xabcdy", {"xa", true, "bc"});
  expect_every_cut({"bc", "abc"}, "xabcy", {"x", true, "abc"});
  expect_every_cut({"<|end|>", "<|e"}, "a<|f<|en", {"a<|f", true, "<|e"});
  expect_every_cut({}, "plain text", {"plain text", false, ""});
  expect_every_cut({"\n\n"}, "a\n\n\nb", {"a", true, "\n\n"});
  expect_every_cut({"é"}, "caf\xc3\xa9s", {"caf", true, "é"});
}

TEST(StopMatcher, EmptyStopsStopNothing) {
  expect_every_cut({"", "x"}, "abxc", {"ab", true, "x"});
  expect_every_cut({""}, "abc", {"abc", false, ""});
}

TEST(StopMatcher, HoldsOnlyWhatMayBeginAStop) {
  StopMatcher matcher({"stop", "top hat"});
  EXPECT_EQ(matcher.push("a s").text, "a ");
  EXPECT_EQ(matcher.push("to").text, "");
  EXPECT_EQ(matcher.push("x").text, "stox");
  EXPECT_EQ(matcher.push("st").text, "");
  EXPECT_EQ(matcher.finish(), "st");
}

TEST(StopMatcher, NothingFollowsAStop) {
  StopMatcher matcher({"x"});
  EXPECT_TRUE(matcher.push("axb").stopped);
  EXPECT_EQ(matcher.push("more x").text, "");
  EXPECT_FALSE(matcher.push("x").stopped);
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, LongTextIsNotQuadratic) {
  StopMatcher matcher({"aaaaaaaaaaaaaaaaaaaaaaaab"});
  size_t sent = 0;
  for (int i = 0; i < 200'000; ++i) sent += matcher.push("aaaaa").text.size();
  EXPECT_EQ(sent + matcher.finish().size(), 1'000'000u);
}

}  // namespace
}  // namespace mlxcel
