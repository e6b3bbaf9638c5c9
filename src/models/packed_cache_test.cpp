// A model loaded from packed weights is the model loaded from its checkpoint, bit for bit; a cache that does
// not fit is not used, and the folder keeps to its limit.
#include "models/packed_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "kernels/packed.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;
using kernels::Matrix;

class PackedCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("packed_cache_test-{}", ::getpid());
    fs::create_directories(folder_);
    options_ = {.folder = folder_ / "packed", .least = 1, .most = uint64_t{1} << 30};
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path checkpoint(const std::string& name, const std::string& text = "{}") const {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "config.json") << text;
    return folder_ / name;
  }
  static Weight weight(int rows) {
    array data = mx::random::normal({rows, 64});
    mx::eval(data);
    return {"w", {rows, 64}, data, std::nullopt, std::nullopt, std::nullopt};
  }
  /// A load: what is not found is kept. Whether the weight came from the cache.
  bool load(const fs::path& path, const Weight& w, PackedCacheOptions options, bool* wrote = nullptr) const {
    PackedCache cache(std::move(options), path, settings_);
    const kernels::WeightForm form = kernels::form_of(w);
    auto found = cache.find({&form, 1}, false);
    if (!found) cache.keep(Matrix::concatenated({&w, 1}));
    cache.store();
    const bool written = cache.wait();
    if (wrote) *wrote = written;
    if (found) {
      EXPECT_TRUE(identical(found->unpack()[0], w));
    }
    return found.has_value();
  }
  size_t files() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(options_.folder))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }

  fs::path folder_;
  PackedCacheOptions options_;
  std::string settings_;
};

TEST_F(PackedCacheTest, TheSecondLoadFindsWhatTheFirstPacked) {
  const fs::path model = checkpoint("a");
  const Weight w = weight(40);
  bool wrote = false;
  EXPECT_FALSE(load(model, w, options_, &wrote));
  EXPECT_TRUE(wrote);
  EXPECT_TRUE(load(model, w, options_, &wrote));
  EXPECT_FALSE(wrote);
  EXPECT_EQ(files(), 1u);
}

TEST_F(PackedCacheTest, AChangedCheckpointIsPackedAnew) {
  const fs::path model = checkpoint("a");
  const Weight w = weight(40);
  load(model, w, options_);
  checkpoint("a", R"({"changed": 1})");
  bool wrote = false;
  EXPECT_FALSE(load(model, w, options_, &wrote));
  EXPECT_TRUE(wrote);
  EXPECT_TRUE(load(model, w, options_));
  EXPECT_EQ(files(), 1u);
  std::ofstream(model / "more.safetensors") << "x";
  EXPECT_FALSE(load(model, w, options_));
  settings_ = "heads overridden";
  EXPECT_FALSE(load(model, w, options_));
}

TEST_F(PackedCacheTest, ADamagedFileIsReplaced) {
  const fs::path model = checkpoint("a");
  const Weight w = weight(40);
  load(model, w, options_);
  for (const auto& entry : fs::directory_iterator(options_.folder)) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 77);
    file.put('\x55');
  }
  bool wrote = false;
  EXPECT_FALSE(load(model, w, options_, &wrote));
  EXPECT_TRUE(wrote);
  EXPECT_TRUE(load(model, w, options_));
}

TEST_F(PackedCacheTest, KeepsToItsLimitAndDropsTheOldest) {
  const Weight w = weight(512);
  const uint64_t each = Matrix::concatenated({&w, 1}).bytes();
  options_.most = each * 5 / 2;
  for (const char* name : {"a", "b", "c"}) {
    load(checkpoint(name), w, options_);
    ::usleep(20000);
  }
  EXPECT_EQ(files(), 2u);
  EXPECT_TRUE(load(folder_ / "c", w, options_));
  EXPECT_TRUE(load(folder_ / "b", w, options_));
  EXPECT_FALSE(load(folder_ / "a", w, options_));
  bool wrote = true;
  options_.most = each / 2;
  EXPECT_FALSE(load(checkpoint("d"), w, options_, &wrote));
  EXPECT_FALSE(wrote);
}

TEST_F(PackedCacheTest, SmallModelsAndFoldersThatCannotBeAreLeftAlone) {
  const Weight w = weight(40);
  bool wrote = true;
  PackedCacheOptions small = options_;
  small.least = uint64_t{1} << 20;
  EXPECT_FALSE(load(checkpoint("a"), w, small, &wrote));
  EXPECT_FALSE(wrote);
  PackedCacheOptions nowhere = options_;
  nowhere.folder = "/proc/packed";
  EXPECT_FALSE(load(folder_ / "a", w, nowhere, &wrote));
  EXPECT_FALSE(wrote);
}

TEST_F(PackedCacheTest, WhatHindersAFolderIsToldWhereTheUserNamedIt) {
  const fs::path model = checkpoint("a");
  std::ofstream(folder_ / "file") << "x";
  PackedCacheOptions options = options_;
  for (const fs::path& place : {fs::path("/proc/packed"), folder_ / "file", folder_ / "file/below"}) {
    options.folder = place;
    options.named = false;
    EXPECT_EQ(PackedCache(options, model, settings_).trouble(), "") << place;
    options.named = true;
    const std::string told = PackedCache(options, model, settings_).trouble();
    EXPECT_NE(told.find("MLXCEL_PACKED_CACHE=" + place.string() + ": "), std::string::npos) << told;
    EXPECT_NE(told.find("or say off"), std::string::npos) << told;
  }
  options.folder = folder_ / "made/on/the/way";
  EXPECT_EQ(PackedCache(options, model, settings_).trouble(), "");
  // A folder that cannot be written to serves as long as it holds what is asked for.
  const Weight w = weight(40);
  load(model, w, options);
  fs::permissions(options.folder, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(PackedCache(options, model, settings_).trouble(), "");
  if (::geteuid() != 0) {
    settings_ = "others";
    EXPECT_NE(PackedCache(options, model, settings_).trouble(), "");
  }
  fs::permissions(options.folder, fs::perms::owner_all);
}

TEST(PackedCacheOptions, ComeFromTheEnvironment) {
  const char* const names[] = {"MLXCEL_PACKED_CACHE", "MLXCEL_PACKED_CACHE_MB", "MLXCEL_CACHE_DIR"};
  std::optional<std::string> before[3];
  for (size_t i = 0; i < 3; ++i) {
    if (const char* value = std::getenv(names[i])) before[i] = value;
    ::unsetenv(names[i]);
  }
  ::setenv("MLXCEL_CACHE_DIR", "/somewhere", 1);
  EXPECT_EQ(PackedCacheOptions::from_environment().folder, "/somewhere/packed");
  EXPECT_FALSE(PackedCacheOptions::from_environment().named);
  ::setenv("MLXCEL_PACKED_CACHE", "off", 1);
  EXPECT_TRUE(PackedCacheOptions::from_environment().folder.empty());
  ::setenv("MLXCEL_PACKED_CACHE", "/elsewhere", 1);
  ::setenv("MLXCEL_PACKED_CACHE_MB", "100", 1);
  EXPECT_EQ(PackedCacheOptions::from_environment().folder, "/elsewhere");
  EXPECT_TRUE(PackedCacheOptions::from_environment().named);
  EXPECT_EQ(PackedCacheOptions::from_environment().most, uint64_t{100} << 20);
  ::setenv("MLXCEL_PACKED_CACHE_MB", "much", 1);
  EXPECT_THROW(PackedCacheOptions::from_environment(), Error);
  ::unsetenv("MLXCEL_PACKED_CACHE_MB");
  ::setenv("MLXCEL_PACKED_CACHE", "packed", 1);
  EXPECT_THROW(PackedCacheOptions::from_environment(), Error);
  for (size_t i = 0; i < 3; ++i)
    if (before[i])
      ::setenv(names[i], before[i]->c_str(), 1);
    else
      ::unsetenv(names[i]);
}

}  // namespace
}  // namespace mlxcel
