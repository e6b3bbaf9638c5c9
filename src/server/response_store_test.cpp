// What is kept of responses: bounds by entries, bytes and time, and whose they are; and the slots that
// clients see.
#include "server/response_store.h"

#include <gtest/gtest.h>

#include <thread>

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

TEST(SlotBoard, LowestFreePlaceFirst) {
  SlotBoard board(2);
  EXPECT_EQ(board.take({}), 0);
  EXPECT_EQ(board.take({}), 1);
  EXPECT_EQ(board.take({}), 1);  // one too many shares the last
  board.give_back(0);
  EXPECT_EQ(board.take({}), 0);
  board.progress(0, 5);
  EXPECT_EQ(board.all()[0].generated, 5);
  EXPECT_TRUE(board.all()[0].busy);
}

}  // namespace
}  // namespace mlxcel
