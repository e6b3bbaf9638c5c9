// Every variable of the table is read: a value that its row does not take ends start-up and names the
// variable.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <sstream>

#include "app/flags/flag.h"

namespace mlxcel::app {
namespace {

std::string refusal() {
  FlagState state;
  try {
    read_flags(server_flags(), {}, state);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// What the row refuses; nothing where any text will do.
std::optional<std::string> wrong_value(const Flag& flag, bool ours) {
  if (flag.kind == Flag::Kind::toggle) return ours ? std::optional<std::string>("perhaps") : std::nullopt;
  for (const char* text : {"nonsense", "-7", "1e400"}) {
    FlagState state;
    try {
      flag.apply(state, flag, text);
    } catch (const UsageError&) {
      return text;
    }
  }
  return std::nullopt;
}

TEST(Variables, AValueThatTheRowRefusesIsNamedWithItsVariable) {
  ASSERT_EQ(refusal(), "");
  size_t ours_checked = 0, others_checked = 0;
  for (const Flag& flag : server_flags()) {
    std::istringstream list(flag.env);
    for (std::string name; std::getline(list, name, ',');) {
      const bool ours = !name.starts_with("LLAMA_");
      const auto wrong = wrong_value(flag, ours);
      if (!wrong) continue;
      ::setenv(name.c_str(), wrong->c_str(), 1);
      const std::string answer = refusal();
      ::unsetenv(name.c_str());
      EXPECT_NE(answer.find(name), std::string::npos) << name << "=" << *wrong << " gives: " << answer;
      EXPECT_NE(answer.find(*wrong), std::string::npos) << name << "=" << *wrong << " gives: " << answer;
      ++(ours ? ours_checked : others_checked);
    }
  }
  EXPECT_GT(ours_checked, 40u);
  EXPECT_GT(others_checked, 40u);
}

TEST(Variables, AnEmptyOneIsNotSet) {
  for (const Flag& flag : server_flags()) {
    std::istringstream list(flag.env);
    for (std::string name; std::getline(list, name, ',');) {
      if (name.starts_with("LLAMA_")) continue;
      ::setenv(name.c_str(), "", 1);
      EXPECT_EQ(refusal(), "") << name;
      ::unsetenv(name.c_str());
    }
  }
}

}  // namespace
}  // namespace mlxcel::app
