#include "app/terminal.h"

#include <gtest/gtest.h>

namespace mlxcel::app {
namespace {

TEST(Terminal, ControlCharactersOfAnAnswerAreShownNotFollowed) {
  EXPECT_EQ(for_terminal("plain\n\ttext é日🙂"), "plain\n\ttext é日🙂");
  EXPECT_EQ(for_terminal("\x1b[2J"), "␛[2J");
  EXPECT_EQ(for_terminal(std::string_view("a\0b\x07\x7f", 5)), "a␀b␇␡");
  EXPECT_EQ(for_terminal("a\r\nb\rc"), "a\nbc");
  // C1 as UTF-8; letters that share its first byte, and bytes that are no UTF-8, stay.
  EXPECT_EQ(for_terminal("\xC2\x9B"
                         "1m"),
            "\xEF\xBF\xBD"
            "1m");
  EXPECT_EQ(for_terminal("\xC2\xA7 \xC2"), "\xC2\xA7 \xC2");
}

TEST(Terminal, BytesInWords) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(98362432), "98.4 MB");
  EXPECT_EQ(human_bytes(1500000000), "1.50 GB");
}

}  // namespace
}  // namespace mlxcel::app
