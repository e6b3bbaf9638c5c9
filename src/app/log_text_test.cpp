// How much stands in front of a log's line.
#include "app/log_text.h"

#include <gtest/gtest.h>

namespace mlxcel::app {
namespace {

constexpr const char* kLine = "2026-11-30T06:44:00.123Z info  server: a: line";

TEST(LogText, AsMuchInFrontAsIsWanted) {
  const auto level = log::Level::info;
  EXPECT_EQ(text_log_line(level, kLine, {}), kLine);
  EXPECT_EQ(text_log_line(level, kLine, {.timestamps = false}), "info  server: a: line");
  EXPECT_EQ(text_log_line(level, kLine, {.prefix = false}), "2026-11-30T06:44:00.123Z a: line");
  EXPECT_EQ(text_log_line(level, kLine, {.timestamps = false, .prefix = false}), "a: line");
  const auto colored = text_log_line(log::Level::error, kLine, {.timestamps = false, .colors = true});
  EXPECT_EQ(colored, "\033[31minfo  \033[0mserver: a: line");
}

TEST(LogText, OddLinesStayWhole) {
  EXPECT_EQ(text_log_line(log::Level::warn, "", {}), "");
  EXPECT_EQ(text_log_line(log::Level::warn, "word", {}), "word");
  EXPECT_EQ(text_log_line(log::Level::warn, "t info  no target", {}), "t info  no target");
}

}  // namespace
}  // namespace mlxcel::app
