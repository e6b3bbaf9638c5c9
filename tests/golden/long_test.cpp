// Texts of thousands of tokens: the last rows' logits against the reference, where rotations go beyond their
// original window, windows and chunks lie far behind, memories have taken thousands of steps; and that a
// prompt taken at once needs no memory that grows with the square of its length. Files: tools/golden/long.py.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mlx/memory.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "golden.h"
#include "kernels/matrix.h"

namespace mlxcel::golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct LongGolden {
  Golden golden;  // its tokens stand for the last rows alone
  int count = 0, below = 0;
};

LongGolden read(const fs::path& path) {
  std::ifstream file(path);
  const Json json = Json::parse(file);
  LongGolden l;
  Golden& g = l.golden;
  g.name = json.at("name");
  g.reference = json.at("reference");
  g.config = json.at("config").dump();
  for (const auto& [name, shape] : json.at("tensors").items()) {
    const auto sizes = shape.get<std::vector<int>>();
    g.tensors.push_back({name, Shape(sizes.begin(), sizes.end())});
  }
  l.count = json.at("count");
  l.below = json.at("below");
  g.expected = json.at("logits").get<Rows>();
  for (size_t i = 0; i < g.expected.size(); ++i) {
    g.tokens.push_back(0);
    g.positions.push_back(static_cast<int>(i));
  }
  for (const auto& mutant : json.at("mutants")) {
    Json changed = json.at("config");
    changed.merge_patch(mutant.at("patch"));
    g.mutants.push_back({mutant.at("patch").dump(), changed.dump(), mutant.at("distance")});
  }
  return l;
}

const std::vector<LongGolden>& all_long() {
  static const auto list = [] {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(MLXCEL_SOURCE_DIR "/tests/golden/long"))
      if (entry.path().extension() == ".json") paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<LongGolden> goldens;
    for (const auto& path : paths) goldens.push_back(read(path));
    return goldens;
  }();
  return list;
}

/// The text of long.py.
std::vector<int32_t> text(int count, int below) {
  std::vector<int32_t> tokens;
  uint32_t x = 1;
  for (int i = 0; i < count; ++i) {
    x = x * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>((x >> 16) % static_cast<uint32_t>(below)));
  }
  return tokens;
}

/// Logits of the last `rows` tokens, the text taken in chunks of `chunk`.
Rows last_rows(Model& model, const std::vector<int32_t>& tokens, int chunk, int rows) {
  const int count = static_cast<int>(tokens.size());
  StateStore store(model.layout(),
                   {.kv_dtype = mx::float32, .max_tokens = static_cast<size_t>(count) + 1024});
  RowState row = store.make_row(count);
  Rows out;
  for (int first = 0; first < count;) {
    // The last rows stand in one chunk.
    int taken = std::min(chunk, count - first);
    if (count - first - taken < rows) taken = count - first;
    const bool last = first + taken == count;
    Step step;
    step.add(&row, std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(taken)),
             last ? Wants::all : Wants::none);
    step.seal();
    std::vector<array> wanted = step.pending();
    const array logits = mx::contiguous(model.logits(step));
    wanted.push_back(logits);
    mx::eval(wanted);
    step.commit();
    if (last) {
      const auto width = static_cast<size_t>(logits.shape(1));
      const float* end = logits.data<float>() + logits.size();
      for (int i = rows; i > 0; --i) {
        const float* at = end - static_cast<size_t>(i) * width;
        out.emplace_back(at, at + width);
      }
    }
    first += taken;
  }
  return out;
}

class Exact : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override { kernels::set_precision(kernels::Precision::exact); }
  void TearDown() override { kernels::set_precision(before_); }
  static const LongGolden& entry() { return all_long()[GetParam()]; }

 private:
  kernels::Precision before_ = kernels::precision();
};

class LongTest : public Exact {};

TEST_P(LongTest, agrees_with_the_reference_at_once_and_in_chunks) {
  const auto& [golden, count, below] = entry();
  const int rows = static_cast<int>(golden.tokens.size());
  const auto tokens = text(count, below);
  const auto model = build(golden, golden.config);
  const Rows whole = last_rows(*model, tokens, count, rows);
  EXPECT_LE(distance(golden, whole), 2e-3f) << golden.name << "; reference: " << golden.reference;
  EXPECT_EQ(whole, last_rows(*model, tokens, 700, rows)) << golden.name << ", in chunks";
}

TEST_P(LongTest, tells_its_mutant_apart) {
  const auto& [golden, count, below] = entry();
  const int rows = static_cast<int>(golden.tokens.size());
  ASSERT_FALSE(golden.mutants.empty());
  for (const auto& mutant : golden.mutants) {
    const auto model = build(golden, mutant.config);
    const float found = distance(golden, last_rows(*model, text(count, below), count, rows));
    EXPECT_NEAR(found, mutant.distance, 2e-3f * mutant.distance + 4e-3f)
        << golden.name << ": " << mutant.label;
  }
}

/// What the process holds now, or held at most since the mark below: "VmRSS", "VmHWM".
size_t held(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) << 10;
  return 0;
}

bool mark_peak() {
  std::ofstream mark("/proc/self/clear_refs");
  mark << "5";
  mark.flush();
  return mark.good();
}

class LongMemory : public Exact {};

TEST_P(LongMemory, grows_with_the_length_and_not_with_its_square) {
  const auto& [golden, count, below] = entry();
  constexpr int kTokens = 6000;
  const auto model = build(golden, golden.config);
  (void)last_rows(*model, text(64, below), 64, 1);
  mx::clear_cache();
  const size_t before = held("VmRSS");
  if (before == 0 || !mark_peak()) GTEST_SKIP() << "this system does not tell a process's peak";
  (void)last_rows(*model, text(kTokens, below), kTokens, 1);
  const size_t grown = std::max(held("VmHWM"), before) - before;
  // Scores of one head in f32 would be 144 MB.
  EXPECT_LT(grown, size_t{kTokens} * kTokens * 7 / 2) << golden.name;
  RecordProperty("peak_bytes", std::to_string(grown));
}

std::vector<size_t> where(const std::vector<std::string>& names) {
  std::vector<size_t> list;
  for (size_t i = 0; i < all_long().size(); ++i)
    if (names.empty() || std::find(names.begin(), names.end(), all_long()[i].golden.name) != names.end())
      list.push_back(i);
  return list;
}

std::string test_name(const ::testing::TestParamInfo<size_t>& parameter) {
  std::string name = all_long()[parameter.param].golden.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Every, LongTest, ::testing::ValuesIn(where({})), test_name);
INSTANTIATE_TEST_SUITE_P(Some, LongMemory,
                         ::testing::ValuesIn(where({"llama-yarn", "mistral-window", "llama4_text-chunks",
                                                    "gpt_oss-sinks", "youtu_llm-yarn", "deepseek_v32-chosen",
                                                    "deepseek_v4-pooled", "phi3small-blocks",
                                                    "qwen3_next-memory", "kimi_linear-memory",
                                                    "mamba2-memory"})),
                         test_name);

TEST(LongSet, holds_every_kind) { EXPECT_GE(all_long().size(), 11u); }

}  // namespace
}  // namespace mlxcel::golden
