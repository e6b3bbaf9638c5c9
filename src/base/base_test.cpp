#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/channel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

namespace mlxcel {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_sink([this](log::Level level, std::string_view line) {
      levels_.push_back(level);
      lines_.emplace_back(line);
    });
  }
  void TearDown() override {
    log::set_sink(nullptr);
    log::configure("", log::Level::off);
  }
  std::vector<log::Level> levels_;
  std::vector<std::string> lines_;
};

TEST_F(LogTest, FiltersByTarget) {
  log::configure("warn,engine=debug", log::Level::info);
  log::info("http", "not shown");
  log::warn("http", "shown {}", 1);
  log::debug("engine", "shown {}", 2);
  log::trace("engine", "not shown");
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_TRUE(lines_[0].ends_with("http: shown 1")) << lines_[0];
  EXPECT_TRUE(lines_[1].ends_with("engine: shown 2")) << lines_[1];
  EXPECT_EQ(levels_[0], log::Level::warn);
  EXPECT_EQ(levels_[1], log::Level::debug);
}

TEST_F(LogTest, FallbackHoldsWhereTheFilterIsSilent) {
  log::configure("http=off", log::Level::info);
  log::error("http", "never");
  log::info("engine", "yes");
  log::debug("engine", "no");
  ASSERT_EQ(lines_.size(), 1u);
}

TEST_F(LogTest, EveryLineOfARecordIsRedactedAndCarriesItsHead) {
  log::configure("info", log::Level::off);
  log::hide("topsecretvalue");
  log::info("http", "key topsecretvalue\nnext topsecretvalue\x1b[31m");
  ASSERT_EQ(lines_.size(), 2u);
  for (const auto& line : lines_) {
    EXPECT_EQ(line.find("topsecret"), std::string::npos) << line;
    EXPECT_NE(line.find("http: "), std::string::npos) << line;
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
  }
}

TEST(Log, Redacts) {
  EXPECT_EQ(log::redact("Authorization: Bearer abc.def-1, ok"), "Authorization: Bearer [redacted], ok");
  EXPECT_EQ(log::redact("use sk-abcdefgh12345 now"), "use [redacted] now");
  EXPECT_EQ(log::redact("hf_abcdefgh1234"), "[redacted]");
  EXPECT_EQ(log::redact("?api_key=xyz&n=1"), "?api_key=[redacted]&n=1");
  EXPECT_EQ(log::redact("task-lists and desk-lamps stay"), "task-lists and desk-lamps stay");
  EXPECT_THROW(log::hide("abc"), Error);
}

TEST(Log, Levels) {
  EXPECT_EQ(log::parse_level("WARN"), log::Level::warn);
  EXPECT_EQ(log::parse_level("3"), log::Level::info);
  EXPECT_EQ(log::parse_level("9"), log::Level::trace);
  EXPECT_THROW(log::parse_level("loud"), Error);
  EXPECT_THROW(log::parse_level(""), Error);
  EXPECT_THROW(log::configure("engine=loud", log::Level::off), Error);
}

TEST(Log, ManyThreadsMayLogAndConfigure) {
  int count = 0;  // under the sink's lock
  log::set_sink([&](log::Level, std::string_view) { ++count; });
  log::configure("info", log::Level::off);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int n = 0; n < 50; ++n) log::info("test", "line {}", n);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(count, 200);
  log::set_sink(nullptr);
  log::configure("", log::Level::off);
}

TEST(Channel, KeepsOrderAndEnds) {
  Channel<int> channel;
  std::thread writer([&] {
    for (int i = 0; i < 1000; ++i) channel.push(i);
    channel.close();
  });
  int next = 0;
  while (const auto value = channel.pop()) EXPECT_EQ(*value, next++);
  EXPECT_EQ(next, 1000);
  EXPECT_FALSE(channel.push(1));
  writer.join();
}

TEST(Channel, FullRefusesAndTimeoutGivesNothing) {
  Channel<int> channel(2);
  EXPECT_TRUE(channel.push(1));
  EXPECT_TRUE(channel.push(2));
  EXPECT_FALSE(channel.push(3));
  EXPECT_EQ(channel.size(), 2u);
  EXPECT_EQ(channel.try_pop(), 1);
  EXPECT_EQ(channel.try_pop(), 2);
  EXPECT_EQ(channel.try_pop(), std::nullopt);
  const TimePoint before = Clock::now();
  EXPECT_EQ(channel.pop_for(std::chrono::milliseconds(5)), std::nullopt);
  EXPECT_GE(milliseconds_between(before, Clock::now()), 4.0);
}

TEST(Memory, ParsesAndPrintsBytes) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("1.5G"), size_t{3} << 29);
  EXPECT_EQ(parse_bytes("2GiB"), size_t{2} << 30);
  EXPECT_EQ(parse_bytes("2 mb"), std::nullopt);
  EXPECT_EQ(parse_bytes("2mb"), size_t{2} << 20);
  EXPECT_EQ(parse_bytes(" 2K\t"), 2048u);
  for (const char* open : {"", " ", "none", " NONE ", "0"}) EXPECT_EQ(parse_limit(open), 0u) << open;
  EXPECT_EQ(parse_limit("0.5kb"), 512u);
  for (const char* bad : {"-1", "much", "nonesuch", "1x"}) EXPECT_EQ(parse_limit(bad), std::nullopt) << bad;
  for (const char* bad : {"", "x", "-1", "1e400", "nan", "inf", "9e30", "5q"})
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(size_t{3} << 19), "1.5 MiB");
}

TEST(Memory, KnowsTheMachine) {
  EXPECT_GT(available_memory(), size_t{1} << 20);
  const ProcessMemory memory = process_memory();
  EXPECT_GT(memory.resident, size_t{1} << 20);
  EXPECT_GE(memory.peak, memory.resident);
}

}  // namespace
}  // namespace mlxcel
