// What is kept of responses: bounds by entries, bytes and time, and whose they are; and the slots that
// clients see.
#include "server/response_store.h"

#include <gtest/gtest.h>

#include <thread>

#include "server/reasoning_echo.h"
#include "server/slot_board.h"

namespace mlxcel {
namespace {

StoredResponse entry(const std::string& text) { return {text, {"turn"}, nullptr}; }

TEST(ResponseStore, KeepsForTheKeyThatMadeIt) {
  ResponseStore store({10, 1000, 60});
  store.put("a", "key1", entry("one"));
  EXPECT_EQ(store.get("a", "key1")->json, "one");
  EXPECT_FALSE(store.get("a", "key2"));
  EXPECT_FALSE(store.get("b", "key1"));
  EXPECT_FALSE(store.erase("a", "key2"));
  EXPECT_TRUE(store.erase("a", "key1"));
  EXPECT_FALSE(store.get("a", "key1"));
}

TEST(ResponseStore, TheLeastRecentlyUsedLeavesFirst) {
  ResponseStore store({2, 1000, 60});
  store.put("a", "", entry("one"));
  store.put("b", "", entry("two"));
  EXPECT_TRUE(store.get("a", ""));
  store.put("c", "", entry("three"));
  EXPECT_TRUE(store.get("a", ""));
  EXPECT_FALSE(store.get("b", ""));
  store.put("a", "", entry("again"));
  EXPECT_EQ(store.get("a", "")->json, "again");
}

TEST(ResponseStore, BytesAndTimeAreBounds) {
  ResponseStore bytes({10, 40, 60});
  bytes.put("a", "", entry(std::string(20, 'x')));
  bytes.put("b", "", entry(std::string(20, 'x')));
  EXPECT_FALSE(bytes.get("a", ""));
  EXPECT_TRUE(bytes.get("b", ""));
  bytes.put("c", "", entry(std::string(100, 'x')));  // larger than the store: it leaves at once
  EXPECT_FALSE(bytes.get("c", ""));
  ResponseStore none({0, 1000, 60});
  none.put("a", "", entry("x"));
  EXPECT_FALSE(none.get("a", ""));
  ResponseStore brief({10, 1000, 0.01});
  brief.put("a", "", entry("x"));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(brief.get("a", ""));
}

TEST(ResponseStore, ErasingEndsWhatRuns) {
  ResponseStore store({10, 1000, 60});
  auto stop = std::make_shared<std::atomic<bool>>(false);
  store.put("a", "", {"{}", {}, stop});
  EXPECT_TRUE(store.erase("a", ""));
  EXPECT_TRUE(*stop);
}

TEST(SlotBoard, ARowLeavesOnlyItsOwnPlace) {
  SlotBoard board(2);
  const uint64_t first = board.take(1, {});
  EXPECT_TRUE(board.all()[1].busy);
  EXPECT_FALSE(board.all()[0].busy);
  board.progress(1, first, 7, 3);
  EXPECT_EQ(board.all()[1].processed_tokens, 7);
  EXPECT_EQ(board.all()[1].generated, 3);
  // The next row is there before the first one's last words are read.
  const uint64_t second = board.take(1, {});
  EXPECT_NE(first, second);
  board.progress(1, first, 9, 9);
  board.give_back(1, first);
  EXPECT_TRUE(board.all()[1].busy);
  EXPECT_EQ(board.all()[1].generated, 0);
  board.give_back(1, second);
  EXPECT_FALSE(board.all()[1].busy);
  EXPECT_THROW(board.take(2, {}), std::out_of_range);
}

TEST(ReasoningEcho, GivesBackWhatItMay) {
  ReasoningEcho echo(1000);
  echo.keep("a", "answer", "thought");
  EXPECT_EQ(echo.find("a", "answer"), "thought");
  EXPECT_EQ(echo.find("b", "answer"), "") << "another key's";
  EXPECT_EQ(echo.find("a", "answer "), "");
  echo.keep("a", "answer", "second");
  EXPECT_EQ(echo.find("a", "answer"), "second");
  const size_t one = echo.bytes();
  echo.keep("a", "", "thought");
  echo.keep("a", "other", "");
  echo.keep("a", "long", std::string(126, 'x'));  // more than an eighth
  EXPECT_EQ(echo.bytes(), one);
}

TEST(ReasoningEcho, TheLeastRecentlyUsedGoes) {
  ReasoningEcho echo(1000);
  for (char c = 'a'; c <= 'e'; ++c) echo.keep("k", std::string(40, c), std::string(100, c));
  EXPECT_LE(echo.bytes(), 1000u);
  EXPECT_EQ(echo.find("k", std::string(40, 'e')), std::string(100, 'e'));
  const bool first_left = echo.find("k", std::string(40, 'b')) == std::string(100, 'b');
  ASSERT_TRUE(first_left);  // used now: the next to go is c
  for (char c = 'f'; c <= 'g'; ++c) echo.keep("k", std::string(40, c), std::string(100, c));
  EXPECT_EQ(echo.find("k", std::string(40, 'c')), "");
  EXPECT_EQ(echo.find("k", std::string(40, 'b')), std::string(100, 'b'));
  ReasoningEcho off(0);
  off.keep("k", "answer", "t");
  EXPECT_EQ(off.bytes(), 0u);
}

}  // namespace
}  // namespace mlxcel
