// Goldens written as GGUF by llama.cpp's converter (tools/golden/to_gguf.py) give the same logits: our tables
// of names, keys and changed values undo what it does. Skips where no such folder is named.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "golden.h"
#include "kernels/matrix.h"

namespace mlxcel::golden {
namespace {

TEST(GgufGoldens, agree_with_the_reference) {
  const char* folder = std::getenv("MLXCEL_GGUF_GOLDENS");
  if (!folder) GTEST_SKIP() << "MLXCEL_GGUF_GOLDENS names no folder (tools/golden/to_gguf.py)";
  const auto before = kernels::precision();
  kernels::set_precision(kernels::Precision::exact);
  int seen = 0;
  for (const Golden& golden : all()) {
    const auto path = std::filesystem::path(folder) / (golden.name + ".gguf");
    if (!std::filesystem::exists(path)) continue;
    ++seen;
    try {
      const auto model = load_model(open_checkpoint(path));
      EXPECT_LE(distance(golden, run(*model, golden.tokens)), 2e-3f) << golden.name;
    } catch (const std::exception& error) {
      ADD_FAILURE() << golden.name << ": " << error.what();
    }
  }
  EXPECT_GT(seen, 0);
  kernels::set_precision(before);
}

}  // namespace
}  // namespace mlxcel::golden
