#include "checkpoint/formats/safetensors.h"

#include <gtest/gtest.h>

#include <chrono>

#include "checkpoint/formats/safetensors_writer.h"
#include "checkpoint/formats/test_files.h"

namespace mlxcel {
namespace {

using namespace testing_files;

StoredTensors read(const fs::path& path, std::vector<std::string>* warnings = nullptr) {
  std::vector<std::string> ignored;
  StoredTensors out;
  read_safetensors_header(File::open(path), out, warnings ? *warnings : ignored);
  return out;
}

TEST(Safetensors, WriterAndReaderAgree) {
  Folder folder;
  const uint8_t bytes[3] = {1, 2, 255};
  const int64_t wide[2] = {-1, int64_t{1} << 40};
  const std::vector<std::pair<std::string, array>> given = {{"small", filled({3}, mx::uint8, bytes)},
                                                            {"matrix", numbers({2, 3})},
                                                            {"wide", filled({2}, mx::int64, wide)},
                                                            {"empty", allocated({0, 4}, mx::float16)},
                                                            {"scalar", numbers(Shape{}, 7)}};
  write_safetensors(folder / "a.safetensors", given, {{"format", "mlx"}});
  std::vector<std::string> warnings;
  const StoredTensors read_back = read(folder / "a.safetensors", &warnings);
  EXPECT_TRUE(warnings.empty());
  ASSERT_EQ(read_back.size(), given.size());
  for (const auto& [name, value] : given) {
    const array loaded = load_stored(read_back.at(name), name);
    EXPECT_EQ(loaded.shape(), value.shape());
    EXPECT_EQ(loaded.dtype(), value.dtype());
    EXPECT_EQ(std::memcmp(bytes_of(loaded), bytes_of(value), value.nbytes()), 0) << name;
  }
  SafetensorsWriter short_of(folder / "b.safetensors", {{"x", "F32", {2}}});
  expect_error([&] { short_of.finish(); }, ErrorKind::internal, {"8 declared bytes never came"});
  EXPECT_FALSE(fs::exists(folder / "b.safetensors"));
  expect_error([&] { SafetensorsWriter(folder / "c", {{"x", "F32", {1}}, {"x", "F32", {1}}}); },
               ErrorKind::invalid_request, {"again"});
}

TEST(Safetensors, ConvertsF64AndCopiesUnaligned) {
  Folder folder;
  const double values[2] = {0.1, -3};
  const std::string header = R"({"d":{"dtype":"F64","shape":[2],"data_offsets":[3,19]},)"
                             R"("f":{"dtype":"F32","shape":[1],"data_offsets":[19,23]},)"
                             R"("b":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  const std::string data = std::string("\1\0\1", 3) + raw(values[0]) + raw(values[1]) + raw(2.5f);
  const StoredTensors t = read(folder.put("a", safetensors(header, data)));
  const array d = load_stored(t.at("d"), "d");
  EXPECT_EQ(d.dtype(), mx::float32);
  EXPECT_EQ(d.data<float>()[0], 0.1f);
  EXPECT_EQ(load_stored(t.at("f"), "f").data<float>()[0], 2.5f);
  EXPECT_TRUE(load_stored(t.at("b"), "b").data<bool>()[2]);
}

TEST(Safetensors, ViewsOfOneTensorAreApart) {
  Folder folder;
  write_safetensors(folder / "a", {{"x", numbers({4})}});
  const StoredTensors t = read(folder / "a");
  array first = load_stored(t.at("x"), "x");
  first.data<float>()[0] = 99;  // as MLX does when it reuses a donated input
  EXPECT_EQ(load_stored(t.at("x"), "x").data<float>()[0], 0);
}

TEST(Safetensors, LyingHeadersAreNamed) {
  Folder folder;
  const auto refuse = [&](const std::string& bytes, const std::vector<std::string>& parts,
                          ErrorKind kind = ErrorKind::bad_checkpoint) {
    const fs::path path = folder.put("bad.safetensors", bytes);
    expect_error([&] { read(path); }, kind, parts);
  };
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& range) {
    return safetensors(
        "{\"x\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + range + "}}",
        std::string(16, '\0'));
  };
  refuse("", {"bad.safetensors", "empty", "download incomplete?"});
  refuse("1234", {"too few", "download incomplete?"});
  refuse(raw<uint64_t>(100) + "{}", {"header of 100 bytes", "download incomplete?"});
  refuse(raw<uint64_t>(~0ull) + "{}", {"at most"});
  refuse(raw<uint64_t>(uint64_t{1} << 40) + "{}", {"at most"});
  refuse(safetensors("not json", ""), {"not valid JSON"});
  refuse(safetensors("[]", ""), {"not a JSON object"});
  refuse(safetensors(std::string(5000, '['), ""), {"nested"});
  refuse(safetensors("{\"x\":" + std::string(5000, '{'), ""), {"JSON"});
  refuse(
      safetensors(
          R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          std::string(8, '\0')),
      {"x is declared twice"});
  refuse(
      safetensors(
          R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
          std::string(12, '\0')),
      {"x and y overlap"});
  refuse(safetensors(R"({"x":1})", ""), {"x: expected dtype"});
  refuse(safetensors(R"({"x":{"dtype":"F32","shape":[1]}})", ""), {"x: expected dtype"});
  refuse(safetensors(R"({"__metadata__":[]})", ""), {"__metadata__"});
  refuse(one("F32", "[4]", "[0,32]"), {"x: F32 [4] takes 16 bytes", "32"});
  refuse(one("F32", "[5]", "[0,20]"), {"x: data ends at byte 20", "16", "download incomplete?"});
  refuse(one("F32", "[4]", "[16,0]"), {"end 0 lies before begin 16"});
  refuse(one("F32", "[4]", "[0]"), {"expected [begin, end]"});
  refuse(one("F32", "[4]", "[-16,0]"), {"non-negative"});
  refuse(one("F32", "[-4]", "[0,16]"), {"shape: expected a non-negative integer, found -4"});
  refuse(one("F32", "[1.5]", "[0,4]"), {"non-negative integer"});
  refuse(one("F32", "\"4\"", "[0,16]"), {"shape"});
  refuse(one("F32", "[4294967296]", "[0,16]"), {"beyond 2^31"});
  refuse(one("F32", "[2147483647,2147483647,2147483647]", "[0,16]"), {"overflows"});
  refuse(one("F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), {"at most 8"});
  refuse(one("F32", "[2147483647,0,2147483647,2147483647,2147483647]", "[0,16]"), {"overflows"});
  refuse(one("F32", "[0,2147483647]", "[0,16]"), {"takes 0 bytes"});
  refuse(one("F13", "[4]", "[0,16]"), {"unknown dtype F13"});
  refuse(safetensors("{\"" + std::string(2000, 'n') + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                     ""),
         {"tensor name of 2000 bytes"});
}

TEST(Safetensors, Fp8IsRefusedByName) {
  Folder folder;
  const fs::path path = folder.put(
      "a", safetensors(R"({"w.weight":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", "ab"));
  const StoredTensors t = read(path);
  expect_error([&] { held_dtype(t.at("w.weight"), "w.weight"); }, ErrorKind::unsupported,
               {"w.weight", "fp8"});
}

TEST(Safetensors, UncoveredBytesAreReported) {
  Folder folder;
  std::vector<std::string> warnings;
  read(folder.put("a", safetensors(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "12345")),
       &warnings);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("3 bytes"), std::string::npos);
}

struct Shards : testing::Test {
  Folder folder;
  std::vector<std::string> warnings;
  size_t bytes = 0;
  void shard(const std::string& name, const std::string& tensor) {
    write_safetensors(folder / name, {{tensor, numbers({2})}});
  }
  void index(const std::string& map) {
    folder.put("model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":{" + map + "}}");
  }
  StoredTensors open() { return read_safetensors_folder(folder.path(), warnings, bytes); }
  void three() {
    for (int i = 1; i <= 3; ++i)
      shard(fmt::format("model-0000{}-of-00003.safetensors", i),
            std::string(1, static_cast<char>('a' + i - 1)));
    index(R"("a":"model-00001-of-00003.safetensors","b":"model-00002-of-00003.safetensors",)"
          R"("c":"model-00003-of-00003.safetensors")");
  }
};

TEST_F(Shards, AllPresent) {
  three();
  EXPECT_EQ(open().size(), 3u);
  EXPECT_TRUE(warnings.empty());
  EXPECT_GT(bytes, 24u);
}

TEST_F(Shards, MissingShardIsNamedAtOnce) {
  three();
  fs::remove(folder / "model-00002-of-00003.safetensors");
  const auto begin = std::chrono::steady_clock::now();
  expect_error([&] { open(); }, ErrorKind::bad_checkpoint,
               {"model-00002-of-00003.safetensors", "missing", "download incomplete?"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  fs::remove(folder / "model.safetensors.index.json");  // the numbers in the names tell as well
  expect_error([&] { open(); }, ErrorKind::bad_checkpoint, {"model-00002-of-00003.safetensors", "missing"});
}

TEST_F(Shards, CutOrEmptyShardIsNamed) {
  three();
  fs::resize_file(folder / "model-00003-of-00003.safetensors",
                  fs::file_size(folder / "model-00003-of-00003.safetensors") - 1);
  expect_error([&] { open(); }, ErrorKind::bad_checkpoint,
               {"model-00003-of-00003.safetensors", "download incomplete?"});
  fs::resize_file(folder / "model-00003-of-00003.safetensors", 0);
  expect_error([&] { open(); }, ErrorKind::bad_checkpoint, {"model-00003-of-00003.safetensors", "empty"});
}

TEST_F(Shards, StaleIndexIsAWarning) {
  shard("model.safetensors", "a");
  index(R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors")");
  EXPECT_EQ(open().size(), 1u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("names none of the shards"), std::string::npos);
}

TEST_F(Shards, AnIndexAloneIsNoModel) {
  index("");
  expect_error([&] { open(); }, ErrorKind::bad_checkpoint, {"holds no *.safetensors"});
  index(R"("a":"model-00001-of-00001.safetensors")");
  expect_error([&] { open(); }, ErrorKind::bad_checkpoint, {"model-00001-of-00001.safetensors", "missing"});
}

TEST_F(Shards, ExtraFilesAndNamesAreWarnings) {
  three();
  shard("model.safetensors", "a");
  shard("consolidated.safetensors", "a");
  index(R"("a":"model-00001-of-00003.safetensors","gone":"model-00002-of-00003.safetensors",)"
        R"("c":"model-00003-of-00003.safetensors")");
  EXPECT_EQ(open().size(), 3u);
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_NE(warnings[0].find("model.safetensors; not read"), std::string::npos);
  EXPECT_NE(warnings[1].find("gone"), std::string::npos);
  EXPECT_NE(warnings[2].find("does not list b"), std::string::npos);
}

TEST_F(Shards, SameTensorTwiceIsAnError) {
  shard("model-a.safetensors", "a");
  shard("model-b.safetensors", "a");
  expect_error([&] { open(); }, ErrorKind::bad_checkpoint, {"model-a.safetensors", "model-b.safetensors"});
}

TEST_F(Shards, IndexCannotReachOutside) {
  shard("model.safetensors", "a");
  for (const char* file : {"../x.safetensors", "/etc/passwd", "..", "sub/x.safetensors", ""}) {
    index(fmt::format(R"("a":"{}","b":"model.safetensors")", file));
    expect_error([&] { open(); }, ErrorKind::bad_checkpoint, {"weight_map.a"});
  }
}

// Bytes changed, cut and doubled at random: an error or a correct reading, never a crash (run under ASan).
TEST(Safetensors, SurvivesMutations) {
  Folder folder;
  write_safetensors(folder / "seed", {{"a.weight", numbers({2, 3})}, {"b", numbers({1})}}, {{"k", "v"}});
  const std::string seed = read_file(folder / "seed", 4096);
  uint64_t state = 12345;
  const auto next = [&](uint64_t bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % bound;
  };
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = seed;
    for (uint64_t i = 0; i <= next(4); ++i) {
      switch (next(4)) {
        case 0:
          bytes[next(bytes.size())] = static_cast<char>(next(256));
          break;
        case 1:
          bytes.resize(1 + next(bytes.size()));
          break;
        case 2:
          bytes.insert(next(bytes.size()), 1, "0123456789[]{}\",:-"[next(18)]);
          break;
        default:
          bytes.erase(next(bytes.size()), 1);
          break;
      }
      if (bytes.empty()) bytes = "x";
    }
    const fs::path path = folder.put("mutant", bytes);
    try {
      for (const auto& [name, tensor] : read(path)) {
        const array loaded = load_stored(tensor, name);
        EXPECT_LE(loaded.nbytes(), bytes.size());
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(error.kind() == ErrorKind::bad_checkpoint || error.kind() == ErrorKind::unsupported)
          << error.what();
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace mlxcel
