#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "base/error.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

struct FileTest : testing::Test {
  fs::path folder = fs::temp_directory_path() / ("mlxcel_file_test_" + std::to_string(::getpid()));
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }
  fs::path put(const std::string& name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
    return folder / name;
  }
};

ErrorKind kind_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::internal;
}

TEST_F(FileTest, APipeInAFilesPlaceIsRefusedAtOnce) {
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(kind_of([&] { File::open(pipe); }), ErrorKind::bad_checkpoint) << "and nobody waits for a writer";
}

TEST_F(FileTest, ReadsInsideTheFileOnly) {
  const auto file = File::open(put("a", "0123456789"));
  EXPECT_EQ(file->size(), 10u);
  std::byte part[4];
  file->read(6, part);
  EXPECT_EQ(std::memcmp(part, "6789", 4), 0);
  EXPECT_EQ(kind_of([&] { file->read(7, part); }), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of([&] { file->read(~0ull, part); }), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of([&] { file->map(4, 7); }), ErrorKind::bad_checkpoint);
  EXPECT_EQ(kind_of([&] { file->map(~0ull - 2, 4); }), ErrorKind::bad_checkpoint);
}

TEST_F(FileTest, MapsAnyOffsetAndNeverWritesBack) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text.push_back(static_cast<char>(i % 251));
  const fs::path path = put("b", text);
  const auto file = File::open(path);
  for (const uint64_t offset : {0u, 1u, 8u, 4095u, 4096u, 4100u, 8192u, 19999u}) {
    const auto range = file->map(offset, text.size() - offset);
    ASSERT_EQ(std::memcmp(range->data(), text.data() + offset, range->size()), 0) << offset;
    if (offset >= 8) {
      EXPECT_EQ(std::memcmp(range->data() - 8, text.data() + offset - 8, 8), 0);
    }
    range->data()[0] = std::byte{0xff};
  }
  EXPECT_EQ(read_file(path, 20000), text);
  EXPECT_EQ(file->map(5, 0)->size(), 0u);
  EXPECT_EQ(std::memcmp(file->view(4096, 100)->data(), text.data() + 4096, 100), 0);
}

TEST_F(FileTest, RefusesWhatIsNotThereOrTooLarge) {
  EXPECT_EQ(kind_of([&] { File::open(folder / "none"); }), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { File::open(folder); }), ErrorKind::bad_checkpoint);
  const fs::path path = put("c", "12345");
  EXPECT_EQ(kind_of([&] { read_file(path, 4); }), ErrorKind::bad_checkpoint);
  EXPECT_EQ(read_file(path, 5), "12345");
}

TEST_F(FileTest, AtomicWriteAppearsWholeOrNotAtAll) {
  const fs::path path = put("d", "old");
  {
    AtomicFile file(path);
    file.write("new, but given up");
    EXPECT_EQ(read_file(path, 100), "old");
  }
  EXPECT_EQ(read_file(path, 100), "old");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_file(path, 100), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace mlxcel
