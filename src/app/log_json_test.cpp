// Lines of the log as JSON: what a request's line gives, and what cannot break out of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/log_json.h"

namespace mlxcel::app {
namespace {

nlohmann::json read(std::string_view line, std::string_view level = "info") {
  return nlohmann::json::parse(json_log_line(level, line));
}

TEST(LogJson, ARequestsLineGivesItsParts) {
  const auto line = read(
      "2026-11-30T06:44:00.123Z info  server: req_AbC /v1/chat/completions model=tiny key=0123abcd "
      "status=200 "
      "tokens=5/0/7 first=12ms rate=88.1/s finish=cancelled: client disconnected");
  EXPECT_EQ(line["time"], "2026-11-30T06:44:00.123Z");
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["target"], "server");
  EXPECT_EQ(line["request_id"], "req_AbC");
  EXPECT_EQ(line["route"], "/v1/chat/completions");
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["key"], "0123abcd");
  EXPECT_EQ(line["tokens"], "5/0/7");
  EXPECT_EQ(line["finish"], "cancelled: client disconnected");
}

TEST(LogJson, AMethodStandsBeforeTheRoute) {
  const auto line = read("2026-11-30T06:44:00.123Z info  server: id-1 GET /slots key=- status=501");
  EXPECT_EQ(line["method"], "GET");
  EXPECT_EQ(line["route"], "/slots");
  EXPECT_EQ(line["status"], 501);
}

TEST(LogJson, OtherLinesAreAMessage) {
  const auto line = read("2026-11-30T06:44:00.123Z warni engine: a \"quoted\" line: with = signs", "warn");
  EXPECT_EQ(line["level"], "warn");
  EXPECT_EQ(line["target"], "engine");
  EXPECT_EQ(line["message"], "a \"quoted\" line: with = signs");
  EXPECT_FALSE(line.contains("request_id"));
  EXPECT_FALSE(read("2026-11-30T06:44:00.123Z info  server: stopping: SIGTERM").contains("request_id"));
}

TEST(LogJson, HostileLinesStayOneObject) {
  for (const std::string text :
       {std::string(), std::string("x"), std::string("\xff\xfe\x80"), std::string(5000, '"'),
        std::string("t l server: a=b status="), std::string("t l server: = = =")}) {
    const auto printed = json_log_line("info", text);
    EXPECT_EQ(printed.find('\n'), std::string::npos);
    EXPECT_TRUE(nlohmann::json::parse(printed, nullptr, false).is_object()) << printed;
  }
}

}  // namespace
}  // namespace mlxcel::app
