// Prefixes on disk: what comes back is what was written, and whatever was damaged, cut, or is another's does
// not.
#include "engine/loop/disk_cache.h"

#include <gtest/gtest.h>
#include <mlx/transforms.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "state/attend.h"
#include "state/step.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheTest()
      : folder_(fs::temp_directory_path() / fmt::format("mlxcel-disk-{}-{}", ::getpid(),
                                                        ::testing::UnitTest::GetInstance()->random_seed())),
        store_(layout(), {.kv_dtype = mx::float16, .max_tokens = 4096}) {
    fs::remove_all(folder_);
    log::configure("", log::Level::info);
    log::set_sink([this](log::Level, std::string_view line) { lines_ += std::string(line) + "\n"; });
  }
  ~DiskCacheTest() override {
    log::set_sink(nullptr);
    log::configure("", log::Level::off);
    fs::remove_all(folder_);
  }

  static StateLayout layout() {
    StateLayout layout;
    layout.add_kv({.kv_heads = 2, .key_dim = 8, .value_dim = 8});
    layout.add_kv({.kv_heads = 1, .key_dim = 8, .value_dim = 8, .window = 16});
    return layout;
  }
  static std::vector<TokenId> tokens(int count, int seed) {
    std::mt19937 rng(static_cast<unsigned>(seed));
    std::vector<TokenId> ids(static_cast<size_t>(count));
    for (auto& id : ids) id = static_cast<TokenId>(rng() % 1000);
    return ids;
  }
  /// A row of these tokens whose keys and values follow from them.
  RowState row_of(StateStore& store, const std::vector<TokenId>& ids) {
    RowState row = store.make_row(static_cast<int>(ids.size()));
    attend_all(row, ids);
    return row;
  }
  static std::vector<float> attend_all(RowState& row, const std::vector<TokenId>& ids) {
    Step step;
    step.add(&row, ids, Wants::last);
    step.seal();
    std::vector<array> outs;
    for (const int slot : {0, 1}) {
      const int heads = slot == 0 ? 2 : 1;
      std::vector<float> x;
      for (size_t i = 0; i < ids.size() * static_cast<size_t>(heads) * 8; ++i)
        x.push_back(std::sin(static_cast<float>(ids[i / (static_cast<size_t>(heads) * 8)]) +
                             static_cast<float>(i % 16)));
      const array k(x.begin(), {static_cast<int>(ids.size()), heads, 8}, mx::float32);
      outs.push_back(attend(k, k, k, step, slot, {}));
    }
    mx::eval(outs);
    step.commit();
    std::vector<float> all;
    for (const array& out : outs) all.insert(all.end(), out.data<float>(), out.data<float>() + out.size());
    return all;
  }
  void put(DiskCache& cache, const std::string& scope, const std::vector<TokenId>& ids) {
    cache.write(scope, ids, RowImage::of(row_of(store_, ids)));
    cache.flush();
    cache.collect();
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& file : fs::directory_iterator(folder_)) found.push_back(file.path());
    std::sort(found.begin(), found.end());
    return found;
  }

  fs::path folder_;
  StateStore store_;
  std::string lines_;
};

TEST_F(DiskCacheTest, WhatComesBackIsWhatWasWritten) {
  const auto ids = tokens(75, 1);
  {
    DiskCache cache(folder_, "one", 1 << 30);
    put(cache, "scope", ids);
    EXPECT_FALSE(cache.find("scope", ids, true));  // memory has it
    EXPECT_EQ(cache.figures().writes, 1u);
  }
  ASSERT_EQ(files().size(), 1u);
  struct stat info{};
  ASSERT_EQ(::stat(files()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);

  DiskCache again(folder_, "one", 1 << 30);
  auto longer = ids;
  longer.push_back(3);
  EXPECT_FALSE(again.find("another scope", longer, true));
  const auto entry = again.find("scope", longer, true);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->tokens, ids);
  StateStore other(layout(), {.kv_dtype = mx::float16, .max_tokens = 4096});
  auto back = row_from_image(other, entry->image);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->length(), 75);
  RowState direct = row_of(store_, ids);
  EXPECT_EQ(attend_all(direct, {5, 6, 7}), attend_all(*back, {5, 6, 7}));
  // Not for another layout or type.
  StateStore wide(layout(), {.kv_dtype = mx::float32, .max_tokens = 4096});
  EXPECT_FALSE(row_from_image(wide, entry->image));
  for (const size_t cut : {size_t{0}, size_t{7}, size_t{40}, entry->image.size() - 1})
    EXPECT_FALSE(row_from_image(other, std::span(entry->image).first(cut)));
  EXPECT_EQ(again.figures().hits, 1u);
  EXPECT_GE(again.figures().misses, 1u);
}

TEST_F(DiskCacheTest, WhatIsDroppedWhileItIsWrittenDoesNotStay) {
  DiskCache cache(folder_, "one", 1 << 30);
  for (int i = 0; i < 20; ++i) {
    const auto ids = tokens(64 + i, i);
    cache.write("scope", ids, RowImage::of(row_of(store_, ids)));
    cache.drop("scope", ids);
  }
  cache.flush();
  cache.collect();
  EXPECT_TRUE(files().empty());
  EXPECT_EQ(cache.figures().bytes, 0u);
  // Dropped, and kept again.
  const auto ids = tokens(64, 1);
  cache.write("scope", ids, RowImage::of(row_of(store_, ids)));
  cache.drop("scope", ids);
  put(cache, "scope", ids);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(DiskCacheTest, WhatIsDamagedOrCutIsAMissAndGoes) {
  const auto ids = tokens(64, 2);
  {
    DiskCache cache(folder_, "one", 1 << 30);
    put(cache, "s", ids);
  }
  ASSERT_EQ(files().size(), 1u);
  const fs::path path = files()[0];
  std::string good;
  {
    std::ifstream in(path, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto spoiled = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    DiskCache cache(folder_, "one", 1 << 30);
    const bool found = cache.find("s", ids, true).has_value();
    EXPECT_EQ(cache.figures().hits, found ? 1u : 0u);
    if (!found && bytes != good) {
      EXPECT_FALSE(fs::exists(path)) << "left for the next start";
    }
    return !found;
  };
  EXPECT_FALSE(spoiled(good));
  for (const size_t cut : {size_t{0}, size_t{5}, size_t{39}, size_t{200}, good.size() / 2, good.size() - 1}) {
    lines_.clear();
    EXPECT_TRUE(spoiled(good.substr(0, cut))) << cut;
    EXPECT_NE(lines_.find("is dropped"), std::string::npos) << cut;
  }
  EXPECT_TRUE(spoiled(good + "x"));
  // One bit anywhere: header, tokens, image, digest. Those that make it another's entry are not found either.
  std::mt19937 rng(3);
  for (int i = 0; i < 60; ++i) {
    std::string bad = good;
    const size_t at = i < 40 ? static_cast<size_t>(i) * 3 % good.size() : rng() % good.size();
    bad[at] = static_cast<char>(bad[at] ^ (1 << (rng() % 8)));
    std::ofstream(path, std::ios::binary) << bad;
    DiskCache cache(folder_, "one", 1 << 30);
    EXPECT_FALSE(cache.find("s", ids, true)) << "byte " << at;
    fs::remove(path);
  }
  // Sizes that lie: nothing is allocated for them.
  std::string lying = good;
  for (size_t i = 16; i < 40; ++i) lying[i] = '\xff';
  EXPECT_TRUE(spoiled(lying));
}

TEST_F(DiskCacheTest, OtherModelsEntriesAreNotReadAndNotTouched) {
  const auto ids = tokens(64, 3);
  {
    DiskCache cache(folder_, "one", 1 << 30);
    put(cache, "s", ids);
  }
  DiskCache other(folder_, "two", 1 << 30);
  EXPECT_FALSE(other.find("s", ids, true));
  EXPECT_EQ(other.figures().corrupt, 0u);
  EXPECT_EQ(files().size(), 1u);
  // Under the other's name it is still not its entry.
  put(other, "s", tokens(64, 4));
  ASSERT_EQ(files().size(), 2u);
}

TEST_F(DiskCacheTest, ARenamedEntryIsNotBelieved) {
  const auto a = tokens(64, 5), b = tokens(64, 6);
  {
    DiskCache cache(folder_, "one", 1 << 30);
    put(cache, "s", a);
    put(cache, "s", b);
  }
  const auto both = files();
  ASSERT_EQ(both.size(), 2u);
  fs::rename(both[0], folder_ / "swap");
  fs::rename(both[1], both[0]);
  fs::rename(folder_ / "swap", both[1]);
  DiskCache cache(folder_, "one", 1 << 30);
  EXPECT_FALSE(cache.find("s", a, true));
  EXPECT_FALSE(cache.find("s", b, true));
}

TEST_F(DiskCacheTest, TheBudgetHoldsAndTheOldestGo) {
  uint64_t one = 0;
  {
    DiskCache cache(folder_, "one", 1 << 30);
    put(cache, "s", tokens(64, 10));
    one = fs::file_size(files()[0]);
  }
  fs::remove_all(folder_);
  {
    DiskCache cache(folder_, "one", 3 * one + one / 2);
    for (int i = 0; i < 5; ++i) {
      put(cache, "s", tokens(64, 20 + i));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_LE(files().size(), 3u);
    }
  }
  EXPECT_EQ(files().size(), 3u);
  DiskCache cache(folder_, "one", 3 * one + one / 2);
  EXPECT_FALSE(cache.find("s", tokens(64, 20), true));
  EXPECT_FALSE(cache.find("s", tokens(64, 21), true));
  for (int i = 2; i < 5; ++i) EXPECT_TRUE(cache.find("s", tokens(64, 20 + i), true)) << i;
  // An entry over the whole budget is not written, and costs none of the others.
  DiskCache tiny(folder_ / "tiny", "one", one / 2);
  put(tiny, "s", tokens(64, 30));
  EXPECT_EQ(tiny.figures().writes, 0u);
  EXPECT_NE(lines_.find("was not written"), std::string::npos);
}

TEST_F(DiskCacheTest, WhatIsNotUsedForTooLongGoes) {
  {
    DiskCache cache(folder_, "one", 1 << 30);
    put(cache, "s", tokens(64, 40));
  }
  fs::last_write_time(files()[0], fs::file_time_type::clock::now() - std::chrono::hours(2));
  {
    DiskCache cache(folder_, "one", 1 << 30, 3 * 3600.0);
    EXPECT_TRUE(cache.find("s", tokens(64, 40), true));
  }
  fs::last_write_time(files()[0], fs::file_time_type::clock::now() - std::chrono::hours(2));
  DiskCache cache(folder_, "one", 1 << 30, 3600.0);
  EXPECT_FALSE(cache.find("s", tokens(64, 40), true));
  EXPECT_TRUE(files().empty());
}

// A writer that dies leaves a file beside the entry's name, never the name itself.
TEST_F(DiskCacheTest, HalfWrittenFilesAreNoEntries) {
  const auto ids = tokens(64, 50);
  {
    DiskCache cache(folder_, "one", 1 << 30);
    put(cache, "s", ids);
  }
  const fs::path path = files()[0];
  fs::rename(path, path.string() + ".partial");
  DiskCache cache(folder_, "one", 1 << 30);
  EXPECT_FALSE(cache.find("s", ids, true));
  EXPECT_EQ(cache.figures().corrupt, 0u);
}

TEST_F(DiskCacheTest, SeveralMayShareAFolder) {
  DiskCache a(folder_, "one", 1 << 30);
  DiskCache b(folder_, "one", 1 << 30);
  put(a, "s", tokens(64, 60));
  put(b, "s", tokens(64, 60));  // the same name, renamed over
  EXPECT_EQ(files().size(), 1u);
  DiskCache c(folder_, "one", 1 << 30);
  fs::remove(files()[0]);
  EXPECT_FALSE(c.find("s", tokens(64, 60), true));  // gone since c looked: a miss, no damage
  EXPECT_EQ(c.figures().corrupt, 0u);
}

TEST_F(DiskCacheTest, AFolderThatCannotBeMadeIsSaid) {
  std::ofstream(folder_.string()) << "a file";
  try {
    DiskCache cache(folder_ / "below", "one", 1 << 30);
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.param(), "prompt-cache-dir");
  }
  fs::remove(folder_);
}

}  // namespace
}  // namespace mlxcel
