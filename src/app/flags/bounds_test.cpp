// Flags that bound batches and kept prefixes, and what follows from them once all are read.
#include <gtest/gtest.h>

#include "app/flags/flag.h"

namespace mlxcel::app {
namespace {

ServeFlags parsed(std::vector<std::string> words) {
  words.insert(words.begin(), {"mlxcel-server", "-m", "somewhere"});
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  return parse_serve_flags(static_cast<int>(argv.size()), argv.data(), "mlxcel-server");
}

TEST(BoundFlags, RowsOfAStepAndTheWindow) {
  EXPECT_EQ(parsed({}).parallel, 4);
  EXPECT_EQ(parsed({"--max-batch-size", "2"}).parallel, 4);
  EXPECT_EQ(parsed({"--max-batch-size", "8"}).parallel, 8);
  const auto few = parsed({"--max-batch-size", "2", "-np", "6", "-c", "2048"});
  EXPECT_EQ(few.parallel, 6);
  EXPECT_EQ(few.engine.max_batch, 2);
  EXPECT_EQ(few.model.context, 1024) << "divided by the rows of a step";
  EXPECT_THROW(parsed({"--max-batch-size", "4", "-np", "2"}), UsageError);
  EXPECT_THROW(parsed({"--max-batch-size", "2", "--no-batch"}), UsageError);
  EXPECT_EQ(parsed({"--max-batch-size", "1", "--no-batch"}).parallel, 1);
}

TEST(BoundFlags, TokensOfPromptsThatShareAStep) {
  EXPECT_EQ(parsed({}).engine.max_prefill_rows, 4);
  EXPECT_EQ(parsed({}).engine.max_prefill_tokens, 4096);
  EXPECT_EQ(parsed({"--max-batch-prefill", "2"}).engine.max_prefill_tokens, 2048);
  EXPECT_EQ(parsed({"-b", "100"}).engine.max_prefill_tokens, 800);
  EXPECT_EQ(parsed({"-b", "0"}).engine.max_prefill_tokens, 4096);
  EXPECT_EQ(parsed({"--max-batch-prefill-tokens", "0"}).engine.max_prefill_tokens, 0);
}

TEST(BoundFlags, KeptPrefixes) {
  const auto bounds =
      parsed({"--prompt-cache-max-entries", "7", "--prompt-cache-ttl", "1.5", "--prompt-cache-min-prefix",
              "16", "--prompt-cache-snapshot-capacity-bytes", "2M", "--prompt-cache-snapshot-max-entries",
              "3", "--prompt-cache-snapshot-ttl", "0", "--apc-enabled=false", "--apc-num-blocks", "9"});
  const PromptCacheBounds& b = bounds.engine.prompt_cache_bounds;
  EXPECT_EQ(b.entries, 7u);
  EXPECT_EQ(b.ttl_s, 1.5);
  EXPECT_EQ(b.min_prefix, 16);
  EXPECT_EQ(b.snapshot_bytes, size_t{2} << 20);
  EXPECT_EQ(b.snapshot_entries, 3u);
  EXPECT_EQ(b.snapshot_ttl_s, 0.0);
  EXPECT_TRUE(b.whole_only);
  EXPECT_EQ(b.pages, 9u);
  ASSERT_EQ(bounds.notes.size(), 1u);
  EXPECT_NE(bounds.notes[0].find("32 is in effect"), std::string::npos);
  const auto size = parsed({"--apc-block-size", "16"});
  ASSERT_EQ(size.notes.size(), 1u);
  EXPECT_TRUE(parsed({"--apc-block-size", "32"}).notes.empty());
}

}  // namespace
}  // namespace mlxcel::app
