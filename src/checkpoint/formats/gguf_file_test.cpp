#include "checkpoint/formats/gguf_file.h"

#include <gtest/gtest.h>

#include <chrono>

#include "checkpoint/formats/gguf_blocks.h"
#include "checkpoint/formats/test_files.h"

namespace mlxcel {
namespace {

using namespace testing_files;

std::string data_of(size_t floats) { return std::string(floats * 4, '\0'); }

struct GgufFile : testing::Test {
  Folder folder;
  void refuse(const std::string& bytes, const std::vector<std::string>& parts,
              ErrorKind kind = ErrorKind::bad_checkpoint) {
    const fs::path path = folder.put("bad.gguf", bytes);
    expect_error([&] { read_gguf(path); }, kind, parts);
  }
  static Gguf plain() {
    return Gguf().string("general.architecture", "llama").tensor("a", 0, {4, 2}, data_of(8));
  }
};

TEST_F(GgufFile, ReadsEveryValueType) {
  Gguf file = plain();
  const auto list = [](uint32_t type, uint64_t count, const std::string& data) {
    return raw(type) + raw(count) + data;
  };
  file.pair("u8", 0, raw<uint8_t>(200))
      .pair("i8", 1, raw<int8_t>(-3))
      .pair("u16", 2, raw<uint16_t>(60000))
      .pair("i16", 3, raw<int16_t>(-300))
      .pair("u32", 4, raw<uint32_t>(4000000000))
      .pair("i32", 5, raw<int32_t>(-7))
      .pair("f32", 6, raw(0.5f))
      .boolean("bool", true)
      .string("text", "caf\xc3\xa9")
      .pair("u64", 10, raw<uint64_t>(~0ull))
      .pair("i64", 11, raw<int64_t>(-9))
      .pair("f64", 12, raw(0.1))
      .pair("ints", 9, list(5, 2, raw<int32_t>(-1) + raw<int32_t>(5)))
      .pair("reals", 9, list(6, 1, raw(0.25f)))
      .pair("bools", 9, list(7, 2, std::string("\0\1", 2)))
      .pair("texts", 9, list(8, 2, Gguf::text("a") + Gguf::text("")))
      .pair("none", 9, list(8, 0, ""));
  const GgufContents c = read_gguf(folder.put("a.gguf", file.bytes()));
  const auto& m = c.metadata;
  EXPECT_EQ(gguf_integer(m, "u8", 0, 255), 200);
  EXPECT_EQ(gguf_integer(m, "i8", -128, 127), -3);
  EXPECT_EQ(gguf_integer(m, "u32", 0, INT64_MAX), 4000000000);
  EXPECT_EQ(gguf_integer(m, "i64", -10, 0), -9);
  EXPECT_EQ(gguf_number(m, "f32"), 0.5);
  EXPECT_EQ(gguf_number(m, "f64"), 0.1);
  EXPECT_EQ(gguf_number(m, "i32"), -7);
  EXPECT_EQ(gguf_bool(m, "bool"), true);
  EXPECT_EQ(gguf_string(m, "text"), "caf\xc3\xa9");
  EXPECT_EQ(gguf_string(m, "absent"), std::nullopt);
  const auto array_at = [&](const char* key) { return std::get<GgufArray>(m.find(key)->second.value); };
  EXPECT_EQ(std::get<std::vector<int64_t>>(array_at("ints")), (std::vector<int64_t>{-1, 5}));
  EXPECT_EQ(std::get<std::vector<double>>(array_at("reals")), std::vector<double>{0.25});
  EXPECT_EQ(std::get<std::vector<bool>>(array_at("bools")), (std::vector<bool>{false, true}));
  EXPECT_EQ(std::get<std::vector<std::string>>(array_at("texts")), (std::vector<std::string>{"a", ""}));
  EXPECT_TRUE(std::get<std::vector<std::string>>(array_at("none")).empty());
  expect_error([&] { gguf_integer(m, "text", 0, 1); }, ErrorKind::bad_checkpoint, {"text", "an integer"});
  expect_error([&] { gguf_integer(m, "u64", 0, INT64_MAX); }, ErrorKind::bad_checkpoint, {"u64"});
  expect_error([&] { gguf_integer(m, "u8", 0, 100); }, ErrorKind::bad_checkpoint, {"u8", "0 to 100", "200"});
  expect_error([&] { gguf_string(m, "u8"); }, ErrorKind::bad_checkpoint, {"u8", "a string"});
  EXPECT_EQ(c.tensors.at("a").shape, Shape({2, 4}));
}

TEST_F(GgufFile, VersionTwoReadsTheSame) {
  Gguf file = plain();
  file.version = 2;
  EXPECT_EQ(read_gguf(folder.put("a.gguf", file.bytes())).tensors.size(), 1u);
  file.version = 1;
  refuse(file.bytes(), {"version 1"}, ErrorKind::unsupported);
  file.version = 0x03000000;
  refuse(file.bytes(), {"big-endian"}, ErrorKind::unsupported);
}

TEST_F(GgufFile, LyingHeadersAreNamed) {
  refuse("", {"download incomplete?"});
  refuse(std::string(64, 'x'), {"does not begin with GGUF"});
  refuse("GGUF" + raw<uint32_t>(3) + raw<uint64_t>(~0ull) + raw<uint64_t>(0), {"tensors cannot stand"});
  refuse("GGUF" + raw<uint32_t>(3) + raw<uint64_t>(0) + raw<uint64_t>(1 << 20), {"pairs cannot stand"});
  refuse("GGUF" + raw<uint32_t>(3) + raw<uint64_t>(0) + raw<uint64_t>(1) + raw<uint64_t>(1 << 30) +
             std::string(64, 'k'),
         {"a metadata key", "at most"});
  refuse("GGUF" + raw<uint32_t>(3) + raw<uint64_t>(0) + raw<uint64_t>(1) + raw<uint64_t>(500) + "k",
         {"cannot stand"});
  refuse("GGUF" + raw<uint32_t>(3) + raw<uint64_t>(0) + raw<uint64_t>(1) + raw<uint64_t>(500) +
             std::string(30, 'k'),
         {"past the end", "download incomplete?"});
  refuse(plain().pair("k", 77, "").bytes(), {"k: unknown value type 77"});
  refuse(plain().pair("k", 7, "\x02").bytes(), {"k: expected a boolean"});
  refuse(plain().pair("k", 8, raw<uint64_t>(uint64_t{1} << 40)).bytes(), {"k: a string of", "at most"});
  refuse(plain().pair("k", 9, raw<uint32_t>(4) + raw<uint64_t>(uint64_t{1} << 60)).bytes(),
         {"k: an array of", "past the end"});
  refuse(plain().pair("k", 9, raw<uint32_t>(8) + raw<uint64_t>(~0ull)).bytes(),
         {"k: an array of", "past the end"});
  refuse(
      plain().pair("k", 9, raw<uint32_t>(9) + raw<uint64_t>(1) + raw<uint32_t>(9) + raw<uint64_t>(0)).bytes(),
      {"k: arrays of arrays"});
  refuse(plain().pair("k", 9, raw<uint32_t>(99) + raw<uint64_t>(1)).bytes(), {"k: unknown value type 99"});
  refuse(plain().pair("k", 9, raw<uint32_t>(10) + raw<uint64_t>(1) + raw<uint64_t>(~0ull)).bytes(),
         {"k:", "beyond"});
  refuse(plain().integer("k", 1).integer("k", 2).bytes(), {"k is given twice"});
  for (const uint32_t alignment : {3u, 48u})
    refuse(plain().integer("general.alignment", alignment).bytes(), {"power of two"});
  for (const uint32_t alignment : {0u, 1u << 30})
    refuse(plain().integer("general.alignment", alignment).bytes(), {"general.alignment"});
}

TEST_F(GgufFile, LyingTensorsAreNamed) {
  refuse(plain().tensor("a", 0, {1}, data_of(1)).bytes(), {"a is declared twice"});
  refuse(plain().tensor("t", 0, {}, "").bytes(), {"t: expected 1 to 4 dimensions, found 0"});
  refuse(plain().tensor("t", 0, {1, 1, 1, 1, 1}, "").bytes(), {"t: expected 1 to 4 dimensions, found 5"});
  refuse(plain().tensor("t", 0, {0}, "").bytes(), {"t: dimension 0 is 0"});
  refuse(plain().tensor("t", 0, {uint64_t{1} << 31}, "").bytes(), {"t: dimension 0"});
  refuse(plain().tensor("t", 0, {~0ull, 2}, "").bytes(), {"t: dimension 0"});
  refuse(plain().tensor("t", 0, {2147483647, 2147483647, 2147483647, 2147483647}, "").bytes(),
         {"t: dimensions overflow"});
  refuse(plain().tensor("t", 2, {33}, "").bytes(), {"t: rows of 33 elements", "Q4_0", "32"});
  refuse(plain().tensor("t", 12, {128}, "").bytes(), {"t: rows of 128 elements", "Q4_K", "256"});
  refuse(plain().tensor("t", 23, {256}, "").bytes(), {"t: tensors of type IQ4_XS"}, ErrorKind::unsupported);
  refuse(plain().tensor("t", 34, {256}, "").bytes(), {"t: tensors of type TQ1_0"}, ErrorKind::unsupported);
  refuse(plain().tensor("t", 1234, {256}, "").bytes(), {"t: tensors of type number 1234"},
         ErrorKind::unsupported);
  refuse(plain().tensor_at("t", 0, {4}, 16).bytes(), {"t: offset 16", "alignment 32"});
  refuse(plain().tensor_at("t", 0, {4}, 0).bytes(), {"overlap"});
  refuse(plain().tensor_at("t", 0, {4}, 32).bytes(), {"t: 16 bytes", "beyond", "download incomplete?"});
  refuse(plain().tensor_at("t", 0, {4}, ~0ull - 31).bytes(), {"t:", "beyond"});
  std::string cut = plain().bytes();
  cut.resize(cut.size() - 1);
  refuse(cut, {"a: 32 bytes", "download incomplete?"});
}

TEST_F(GgufFile, SplitSets) {
  const auto part = [&](int number, int count, Gguf file) {
    file.pair("split.no", 2, raw<uint16_t>(static_cast<uint16_t>(number - 1)))
        .pair("split.count", 2, raw<uint16_t>(static_cast<uint16_t>(count)));
    if (number == 1) file.pair("split.tensors.count", 5, raw<int32_t>(3));
    return folder.put(fmt::format("m-{:05}-of-{:05}.gguf", number, count), file.bytes());
  };
  part(1, 3, plain());
  const fs::path second = part(2, 3, Gguf().tensor("b", 0, {4}, data_of(4)));
  const fs::path third = part(3, 3, Gguf().tensor("c", 0, {4}, data_of(4)));
  const GgufContents c = read_gguf(third);
  EXPECT_EQ(c.tensors.size(), 3u);
  EXPECT_EQ(c.first.filename(), "m-00001-of-00003.gguf");
  EXPECT_EQ(gguf_string(c.metadata, "general.architecture"), "llama");

  const auto begin = std::chrono::steady_clock::now();
  fs::remove(second);
  expect_error([&] { read_gguf(third); }, ErrorKind::bad_checkpoint,
               {"m-00002-of-00003.gguf", "missing", "download incomplete?"});
  fs::remove(folder / "m-00001-of-00003.gguf");
  expect_error([&] { read_gguf(third); }, ErrorKind::bad_checkpoint,
               {"m-00001-of-00003.gguf, m-00002-of-00003.gguf", "missing"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));

  part(1, 3, plain());
  part(2, 3, Gguf().tensor("a", 0, {4}, data_of(4)));
  expect_error([&] { read_gguf(third); }, ErrorKind::bad_checkpoint, {"a is in two files"});
  part(2, 3, Gguf().tensor("b", 0, {4}, data_of(4)).tensor("d", 0, {4}, data_of(4)));
  expect_error([&] { read_gguf(third); }, ErrorKind::bad_checkpoint, {"split.tensors.count is 3", "4"});
  fs::copy_file(third, second, fs::copy_options::overwrite_existing);
  expect_error([&] { read_gguf(third); }, ErrorKind::bad_checkpoint, {"split.no is 2"});
  fs::copy_file(folder / "m-00001-of-00003.gguf", folder / "loose.gguf");
  expect_error([&] { read_gguf(folder / "loose.gguf"); }, ErrorKind::bad_checkpoint, {"one of 3 parts"});
  fs::copy_file(third, folder / "n-00001-of-00001.gguf");
  expect_error([&] { read_gguf(folder / "n-00001-of-00001.gguf"); }, ErrorKind::bad_checkpoint,
               {"split.count is 3"});
}

// Bytes changed, cut and doubled at random: an error or a correct reading, never a crash (run under ASan).
TEST_F(GgufFile, SurvivesMutations) {
  const std::string seed =
      plain()
          .integer("general.alignment", 32)
          .pair("list", 9, raw<uint32_t>(8) + raw<uint64_t>(2) + Gguf::text("ab") + Gguf::text("c"))
          .tensor("q", 3, {32, 2}, std::string(40, '\x11'))
          .tensor("k", 14, {256}, std::string(210, '\x22'))
          .bytes();
  uint64_t state = 99;
  const auto next = [&](uint64_t bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % bound;
  };
  const size_t header = seed.size() - 400;  // where lies matter
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = seed;
    for (uint64_t i = 0; i <= next(3); ++i) {
      switch (next(8)) {
        case 0:
          bytes.resize(1 + next(bytes.size()));
          break;
        case 1:
          bytes.insert(next(bytes.size()), 1, static_cast<char>(next(256)));
          break;
        case 2:
          bytes.erase(next(bytes.size()), 1);
          break;
        default:
          bytes[next(std::min(bytes.size(), header))] = static_cast<char>(next(4) ? next(256) : 255);
          break;
      }
      if (bytes.empty()) bytes = "x";
    }
    const fs::path path = folder.put("mutant.gguf", bytes);
    try {
      for (const auto& [name, tensor] : read_gguf(path).tensors)
        EXPECT_LE(load_gguf_tensor(tensor, name).data.nbytes(), 16 * bytes.size());
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(error.kind() == ErrorKind::bad_checkpoint || error.kind() == ErrorKind::unsupported)
          << error.what();
    }
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace mlxcel
