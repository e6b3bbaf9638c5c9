// SmolLM2-135M-Instruct from its GGUF against mlx-lm in float32 on the same weights.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "real_model.h"

namespace mlxcel::real {
namespace {

using Json = nlohmann::json;
using kernels::Precision;

Json fixture(const std::string& name) {
  std::ifstream file(MLXCEL_SOURCE_DIR "/tests/real/data/" + name);
  return Json::parse(file);
}

struct Difference {
  double largest = 0;  // of log-probabilities above -10
  double perplexity = 0;
  int compared = 0;
};

using Rows = std::vector<std::vector<float>>;

/// Logits of the first `count` tokens of the prose, in one chunk.
Rows prose_logits(const std::filesystem::path& path, const Setup& setup, const Json& reference,
                  size_t count) {
  auto tokens = reference.at("tokens").get<std::vector<int32_t>>();
  tokens.resize(std::min(count, tokens.size()));
  Loaded loaded(path, setup);
  RowState row = loaded.make_row();
  return loaded.logits(row, tokens, Wants::all);
}

Difference compare(const Rows& logits, const Json& reference) {
  auto tokens = reference.at("tokens").get<std::vector<int32_t>>();
  tokens.resize(logits.size());
  Difference result;
  double surprise = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i)
    surprise -= log_probabilities(logits[i])[static_cast<size_t>(tokens[i + 1])];
  result.perplexity = std::exp(surprise / static_cast<double>(tokens.size() - 1));
  for (const auto& entry : reference.at("rows")) {
    const auto position = entry.at("position").get<size_t>();
    if (position >= tokens.size()) break;
    const auto ours = log_probabilities(logits[position]);
    const auto ids = entry.at("ids").get<std::vector<size_t>>();
    const auto theirs = entry.at("logp").get<std::vector<double>>();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (theirs[i] <= -10) continue;
      const double difference = std::abs(ours[ids[i]] - theirs[i]);
      result.largest = std::isfinite(difference) ? std::max(result.largest, difference) : HUGE_VAL;
      ++result.compared;
    }
  }
  return result;
}

/// Mean over positions of sum(p * (log p - log q)).
double mean_divergence(const Rows& p, const Rows& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const auto a = log_probabilities(p[i]), b = log_probabilities(q[i]);
    for (size_t j = 0; j < a.size(); ++j) sum += std::exp(a[j]) * (a[j] - b[j]);
  }
  return sum / static_cast<double>(p.size());
}

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = find(kSmolLm2);
    if (!found) GTEST_SKIP() << "SmolLM2 is not in the model store: scripts/fetch_model.sh puts it there";
    path_ = *found;
  }
  std::filesystem::path path_;
};

TEST_F(SmolLm2, exact_within_2e_3_and_high_within_0_02) {
  const Json reference = fixture("smollm2_logprobs.json");
  const Rows exact = prose_logits(path_, {.precision = Precision::exact, .kv = mx::float32}, reference, 300);
  const auto found = compare(exact, reference);
  fmt::print("[ measured ] SmolLM2 exact, f32 KV: {:.1e}, perplexity {:.4f}\n", found.largest,
             found.perplexity);
  EXPECT_GT(found.compared, 5000);
  EXPECT_LE(found.largest, 2e-3);
  EXPECT_NEAR(found.perplexity, reference.at("perplexity").get<double>(), 1e-2);

  // The defaults. `exact` stands within 1e-4 of the reference: the divergence from it is that from the
  // reference.
  const Rows high = prose_logits(path_, {.precision = Precision::high, .kv = mx::float16}, reference, 300);
  const auto default_found = compare(high, reference);
  const double divergence = mean_divergence(exact, high);
  fmt::print("[ measured ] SmolLM2 high, f16 KV: {:.1e}, mean KL {:.1e}, perplexity {:.4f}\n",
             default_found.largest, divergence, default_found.perplexity);
  EXPECT_LE(default_found.largest, 0.02);
  EXPECT_LE(divergence, 1e-6);
  EXPECT_NEAR(default_found.perplexity, reference.at("perplexity").get<double>(), 2e-2);
}

TEST_F(SmolLm2, fast_keeps_the_quality_of_eight_bit_activations) {
  const Json reference = fixture("smollm2_logprobs.json");
  const Rows exact = prose_logits(path_, {.precision = Precision::exact, .kv = mx::float16}, reference, 300);
  const Rows fast = prose_logits(path_, {.precision = Precision::fast, .kv = mx::float16}, reference, 300);
  const auto found = compare(fast, reference);
  const double divergence = mean_divergence(exact, fast);
  fmt::print("[ measured ] SmolLM2 fast, f16 KV: {:.1e}, mean KL {:.1e}, perplexity {:.4f}\n", found.largest,
             divergence, found.perplexity);
  EXPECT_LE(found.largest, 2.0);
  EXPECT_LE(divergence, 3e-3);
  EXPECT_GT(divergence, 1e-6);  // or the setting has no effect
  // Over 300 tokens eight-bit activations move the perplexity by 1 %, up or down.
  const double perplexity = reference.at("perplexity").get<double>();
  EXPECT_NEAR(found.perplexity, perplexity, 0.02 * perplexity);
}

TEST_F(SmolLm2, precisions_keep_their_divergence_over_768_tokens) {
  const Json text = fixture("english_tokens.json");
  const Rows exact = prose_logits(path_, {.precision = Precision::exact, .kv = mx::float32}, text, 768);
  ASSERT_EQ(exact.size(), 768u);
  for (const auto& [precision, limit] :
       {std::pair{Precision::high, 1e-6}, std::pair{Precision::fast, 3e-3}}) {
    const Rows rows = prose_logits(path_, {.precision = precision, .kv = mx::float16}, text, 768);
    const double divergence = mean_divergence(exact, rows);
    fmt::print("[ measured ] SmolLM2 {}, f16 KV, 768 tokens: mean KL {:.2e}\n", kernels::to_string(precision),
               divergence);
    EXPECT_LE(divergence, limit);
    EXPECT_GT(divergence, 1e-9);  // or the setting has no effect
  }
}

TEST_F(SmolLm2, kv_modes_lose_what_their_bits_must) {
  const Json reference = fixture("smollm2_logprobs.json");
  const Rows plain = prose_logits(path_, {}, reference, 300);
  const double perplexity = compare(plain, reference).perplexity;
  struct Expected {
    KvModeOptions mode;
    double divergence, perplexity;  // mean KL from f16, and by how much of itself the perplexity may move
  };
  double before = 0.0, asymmetric = 0.0;
  for (const Expected& e :
       {Expected{{.mode = KvMode::int8}, 2e-3, 0.01}, Expected{{.mode = KvMode::turbo4_asym}, 1e-2, 0.02},
        Expected{{.mode = KvMode::turbo3_asym}, 3e-2, 0.05}, Expected{{.mode = KvMode::turbo4}, 1e-1, 0.1}}) {
    const Rows rows = prose_logits(path_, {.kv_mode = e.mode}, reference, 300);
    const double divergence = mean_divergence(plain, rows), moved = compare(rows, reference).perplexity;
    fmt::print("[ measured ] SmolLM2 KV {}: mean KL {:.1e}, perplexity {:.4f} (f16 {:.4f})\n",
               to_string(e.mode.mode), divergence, moved, perplexity);
    EXPECT_LE(divergence, e.divergence);
    EXPECT_GT(divergence, before);  // each loses more than the one before
    EXPECT_NEAR(moved, perplexity, e.perplexity * perplexity);
    before = divergence;
    if (e.mode.mode == KvMode::turbo4_asym) asymmetric = divergence;
  }
  // Recent values as they are: most of what their codes lose comes back.
  const Rows delegated = prose_logits(path_, {.kv_mode = {.mode = KvMode::turbo4_delegated}}, reference, 300);
  const double divergence = mean_divergence(plain, delegated);
  fmt::print("[ measured ] SmolLM2 KV turbo4-delegated: mean KL {:.1e}\n", divergence);
  EXPECT_LT(divergence, asymmetric);
  EXPECT_GT(divergence, 1e-9);
}

TEST_F(SmolLm2, packed_weights_from_a_file_give_the_same_bits) {
  const Json text = fixture("english_tokens.json");
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("smollm2-packed-{}", ::getpid());
  const Rows plain = prose_logits(path_, {}, text, 40);
  real::Setup cached;
  cached.packed.folder = folder;
  EXPECT_EQ(prose_logits(path_, cached, text, 40),
            plain);  // writes it, and has done so when the model is gone
  ASSERT_TRUE(std::filesystem::exists(folder));
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  const auto file = std::filesystem::directory_iterator(folder)->path();
  EXPECT_EQ(file.extension(), ".packed");
  EXPECT_GT(std::filesystem::file_size(file), size_t{90} << 20);
  for (const auto use : {kernels::PackedFile::Use::read, kernels::PackedFile::Use::map}) {
    cached.packed.use = use;
    EXPECT_EQ(prose_logits(path_, cached, text, 40), plain);
  }
  // A bit of a matrix: found, and packed anew.
  {
    std::fstream changed(file, std::ios::in | std::ios::out | std::ios::binary);
    changed.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file) / 2));
    changed.put('\x7f');
  }
  EXPECT_EQ(prose_logits(path_, cached, text, 40), plain);
  std::filesystem::remove_all(folder);
}

TEST_F(SmolLm2, the_plain_graph_within_2e_3) {
  // MLX on a CPU is slow: twenty tokens.
  const Json reference = fixture("smollm2_logprobs.json");
  const auto found = compare(
      prose_logits(path_, {.mode = KernelMode::reference, .kv = mx::float32}, reference, 20), reference);
  fmt::print("[ measured ] SmolLM2 reference kernels, f32 KV: {:.1e}\n", found.largest);
  EXPECT_GT(found.compared, 200);
  EXPECT_LE(found.largest, 2e-3);
}

TEST_F(SmolLm2, greedy_text_is_the_reference_s) {
  const Json reference = fixture("smollm2_greedy.json");
  Loaded loaded(path_, {});
  for (const auto& entry : reference.at("rows")) {
    const auto prompt = entry.at("prompt").get<std::string>();
    const auto want = entry.at("tokens").get<std::vector<int32_t>>();
    const auto gaps = entry.at("gaps").get<std::vector<double>>();
    auto tokens = entry.at("ids").get<std::vector<int32_t>>();
    RowState row = loaded.make_row();
    for (size_t i = 0; i < want.size(); ++i) {
      const auto logits = loaded.logits(row, tokens, Wants::last).front();
      const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (best != want[i] && gaps[i] < 0.04) break;  // a tie within the tolerance: the texts may part here
      ASSERT_EQ(best, want[i]) << prompt << ": token " << i << ", gap " << gaps[i];
      tokens = {best};
    }
  }
}

}  // namespace
}  // namespace mlxcel::real
