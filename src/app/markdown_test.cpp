#include "app/markdown.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace mlxcel::app {
namespace {

std::string painted(const std::string& text, size_t piece) {
  MarkdownPainter painter;
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) out += painter.push(text.substr(at, piece));
  return out + painter.finish();
}

std::string bare(const std::string& text) {
  static const std::regex escape("\x1b\\[[0-9;]*m");
  return std::regex_replace(text, escape, "");
}

const std::vector<std::string> kTexts = {
    "# Title\nplain **bold** and `code` here\n",
    "```python\nx = 2 ** 3  # not a heading\n```\nafter\n",
    "a * b * c, 2**3, ** not bold **, `unclosed",
    "**unclosed\nnext line",
    "#no heading, ####### neither\n  ```\nindented fence\n  ```\n",
    "``a ` b`` **x**",
    "日本語 **太字** `コード`\n",
    "",
    "***both***\n* item\n* **item**\n",
};

TEST(Markdown, OnlyAddsEscapesWhateverThePieces) {
  for (const std::string& text : kTexts)
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
      EXPECT_EQ(bare(painted(text, piece)), text);
      EXPECT_EQ(painted(text, piece), painted(text, 1000)) << text;
    }
}

TEST(Markdown, StylesWhatItShould) {
  EXPECT_EQ(painted("a **b** c", 1), "a \x1b[1m**b**\x1b[0m c");
  EXPECT_EQ(painted("`x`", 1), "\x1b[36m`x`\x1b[0m");
  EXPECT_EQ(painted("## T\nx", 1), "\x1b[1;34m## T\x1b[0m\nx");
  EXPECT_EQ(painted("a ** b", 1), "a ** b");
  EXPECT_EQ(painted("2 # 3", 1), "2 # 3");
}

TEST(Markdown, NothingInABlockIsMarkup) {
  const std::string out = painted("```\n# a **b** `c`\n```\nd", 3);
  EXPECT_EQ(out.find("\x1b[1m"), std::string::npos);
  EXPECT_EQ(out.find("\x1b[1;34m"), std::string::npos);
  EXPECT_TRUE(out.ends_with("\nd")) << out;
}

TEST(Markdown, StyleNeverOutlivesTheAnswer) {
  for (const std::string& text : kTexts) {
    const std::string out = painted(text, 1);
    const auto last = out.rfind("\x1b[");
    if (last != std::string::npos) {
      EXPECT_EQ(out.substr(last, 4), "\x1b[0m") << text;
    }
  }
}

}  // namespace
}  // namespace mlxcel::app
