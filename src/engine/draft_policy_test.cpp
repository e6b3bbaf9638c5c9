// Whether drafts pay: measured, settled, kept and read again.
#include "engine/loop/draft_policy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

class DraftPolicyTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  static DraftPolicy::Key key(int block = 5) {
    return {.target = "target F16 7", .drafter = "mtp by drafter", .hardware = "avx2-2c", .block = block};
  }
  /// An answer of `tokens`; a step takes 10 ms and gives one token, with drafts `gain` of them.
  static void answer(DraftPolicy& policy, int tokens, int gain, double ms_with = 10.0) {
    for (int done = 0; done < tokens;) {
      const bool with = policy.drafts_now();
      policy.observe(with ? gain : 1, with ? ms_with : 10.0);
      done += with ? gain : 1;
    }
    policy.ended(true);
  }
  fs::path only_file() const {
    fs::path found;
    for (const auto& entry : fs::directory_iterator(folder_)) found = entry.path();
    return found;
  }
  fs::path folder_ = fs::temp_directory_path() / ("mlxcel_draft_policy_" + std::to_string(::getpid()));
};

TEST_F(DraftPolicyTest, WithoutMeasuringDraftsAreMade) {
  DraftPolicy policy = DraftPolicy::forced(key(), "adaptive_disabled");
  answer(policy, 500, 1, 100.0);
  EXPECT_TRUE(policy.drafts_now());
  EXPECT_EQ(policy.report().state, "forced");
  EXPECT_EQ(policy.report().reason, "adaptive_disabled");
  EXPECT_TRUE(policy.report().enabled);
}

TEST_F(DraftPolicyTest, TurnsAreMeasuredBothWaysUntilFourAnswersSettleIt) {
  DraftPolicy policy(folder_, key());
  EXPECT_TRUE(policy.measuring());
  EXPECT_TRUE(policy.drafts_now());  // the first turn pays for catching up with the prompt
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(policy.report().samples, i);
    EXPECT_EQ(policy.report().state, "profiling");
    answer(policy, 400, 3);
  }
  const DraftPolicyReport report = policy.report();
  EXPECT_EQ(report.state, "settled");
  EXPECT_EQ(report.reason, "measured");
  EXPECT_EQ(report.verdict, "enable");
  EXPECT_TRUE(report.enabled);
  EXPECT_TRUE(policy.drafts_now());
  EXPECT_EQ(report.samples_required, 4);
  EXPECT_NE(report.detail.find("3.00 times"), std::string::npos) << report.detail;
}

TEST_F(DraftPolicyTest, AnswersThatAreShortOrWereNotAloneDoNotCount) {
  DraftPolicy policy(folder_, key());
  answer(policy, 40, 3);
  EXPECT_EQ(policy.report().samples, 0);
  for (int i = 0; i < 300; ++i) policy.observe(1, 10.0);
  policy.ended(false);
  EXPECT_EQ(policy.report().samples, 0);
  answer(policy, 400, 3);
  EXPECT_EQ(policy.report().samples, 1);
}

TEST_F(DraftPolicyTest, TheVerdictIsKeptForTheSameThingsOnly) {
  DraftPolicy first(folder_, key());
  for (int i = 0; i < 4; ++i) answer(first, 400, 2, 25.0);
  EXPECT_EQ(first.report().verdict, "disable");
  EXPECT_FALSE(first.drafts_now());
  EXPECT_FALSE(first.report().enabled);
  struct ::stat info{};
  ASSERT_EQ(::stat(only_file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  const DraftPolicy again(folder_, key());
  EXPECT_FALSE(again.measuring());
  EXPECT_EQ(again.report().state, "settled");
  EXPECT_EQ(again.report().reason, "kept");
  EXPECT_EQ(again.report().verdict, "disable");
  const DraftPolicy wider(folder_, key(8));
  EXPECT_TRUE(wider.measuring());
}

TEST_F(DraftPolicyTest, DamagedAndForeignFilesAreNone) {
  DraftPolicy first(folder_, key());
  for (int i = 0; i < 4; ++i) answer(first, 400, 3);
  const fs::path file = only_file();
  const std::string good = read_file(file, 1 << 16);
  const auto measures = [&](const std::string& text) {
    std::ofstream(file) << text;
    return DraftPolicy(folder_, key()).measuring();
  };
  EXPECT_FALSE(measures(good));
  EXPECT_TRUE(measures(""));
  EXPECT_TRUE(measures(good.substr(0, good.size() / 2)));
  EXPECT_TRUE(measures("[1, 2]"));
  EXPECT_TRUE(measures(std::string(size_t{1} << 17, ' ') + good));
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return measures(text);
  };
  EXPECT_TRUE(edited("\"version\": 1", "\"version\": 2"));
  EXPECT_TRUE(edited("avx2-2c", "avx2-8c"));
  EXPECT_TRUE(edited("\"enable\"", "\"perhaps\""));
  EXPECT_TRUE(edited("\"with\": ", "\"with\": -"));
  // A folder that cannot be written to costs a warning.
  fs::remove_all(folder_);
  DraftPolicy nowhere("/proc/no_such_place", key());
  for (int i = 0; i < 4; ++i) answer(nowhere, 400, 3);
  EXPECT_EQ(nowhere.report().verdict, "enable");
}

}  // namespace
}  // namespace mlxcel
