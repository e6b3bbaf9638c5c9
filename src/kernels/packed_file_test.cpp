// A file of packed matrices: the same bits as packing gives, and nothing from a file that is not whole.
#include "kernels/packed_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <span>

#include "kernels/isa/dispatch.h"
#include "kernels/packed.h"

namespace mlxcel::kernels {
namespace {

namespace fs = std::filesystem;

array evaluated(array a) {
  a = mx::contiguous(a);
  mx::eval(a);
  return a;
}

Weight coded(const std::string& name, const Shape& shape, int bits, bool centred) {
  const array values = mx::random::normal(shape);
  const auto planes = mx::quantize(values, 32, bits);
  array scales = evaluated(mx::astype(planes[1], mx::float16));
  array biases =
      centred ? evaluated(mx::multiply(scales, mx::astype(array(-std::ldexp(1.0f, bits - 1)), mx::float16)))
              : evaluated(mx::astype(planes[2], mx::float16));
  return {name, shape, evaluated(planes[0]), scales, biases, QuantFormat{QuantMode::affine, bits, 32}};
}

Weight dense(const std::string& name, const Shape& shape, mx::Dtype dtype) {
  return {name,         shape,        evaluated(mx::astype(mx::random::normal(shape), dtype)),
          std::nullopt, std::nullopt, std::nullopt};
}

struct Made {
  std::vector<WeightForm> forms;
  bool gated;
  Matrix matrix;
};

Made made(std::vector<Weight> weights, bool gated) {
  Made m{{}, gated, gated ? Matrix::gated(weights[0], weights[1]) : Matrix::concatenated(weights)};
  for (const Weight& w : weights) m.forms.push_back(form_of(w));
  return m;
}

/// Matrices of every kind: several segments, gates, banks, rows that do not fill a block.
std::vector<Made> some() {
  return {
      made({coded("q", {40, 64}, 4, false), coded("k", {24, 64}, 4, false)}, false),
      made({coded("a", {40, 64}, 4, true), coded("b", {24, 64}, 8, true), dense("c", {7, 64}, mx::bfloat16)},
           false),
      made({coded("gate", {48, 96}, 4, true), coded("up", {48, 96}, 4, true)}, true),
      made({coded("bank", {3, 20, 32}, 6, false)}, false), made({dense("f", {33, 65}, mx::float32)}, false)};
}

class PackedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("packed_file_test-{}", ::getpid());
    fs::create_directories(folder_);
    path_ = folder_ / "m.packed";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::vector<Made>& all, std::string_view key = "key") {
    std::vector<Matrix> matrices;
    for (const Made& m : all) matrices.push_back(m.matrix);
    const std::atomic<bool> stop{false};
    ASSERT_TRUE(PackedFile::write(path_, key, matrices, stop));
  }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string refusal(std::string_view key = "key") const {
    std::string why;
    const auto file = PackedFile::open(path_, key, PackedFile::Use::read, &why);
    return file ? "served" : why;
  }

  fs::path folder_, path_;
};

void expect_same(const Matrix& a, const Matrix& b) {
  ASSERT_EQ(a.storage()->segments.size(), b.storage()->segments.size());
  EXPECT_EQ(a.bytes(), b.bytes());
  for (size_t s = 0; s < a.storage()->segments.size(); ++s) {
    const Segment &x = a.storage()->segments[s], &y = b.storage()->segments[s];
    EXPECT_EQ(std::memcmp(x.memory.get(), y.memory.get(), a.storage()->bytes_of(x)), 0) << "segment " << s;
  }
  const auto before = a.unpack(), after = b.unpack();
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(identical(before[i], after[i])) << before[i].name;
}

TEST_F(PackedFileTest, GivesTheBitsOfPacking) {
  const Isa before = isa();
  for (const Isa set : available_isas()) {
    set_isa(set);
    SCOPED_TRACE(to_string(set));
    const auto all = some();
    write(all);
    for (const auto use : {PackedFile::Use::read, PackedFile::Use::map}) {
      const auto file = PackedFile::open(path_, "key", use);
      ASSERT_TRUE(file);
      for (const Made& m : all) {
        const auto found = file->find(m.forms, m.gated);
        ASSERT_TRUE(found) << m.forms[0].name;
        expect_same(m.matrix, *found);
        if (m.matrix.experts() == 0 && !m.gated) {
          const array x = evaluated(mx::random::normal({3, m.matrix.columns()}));
          EXPECT_TRUE(mx::array_equal(matmul(x, m.matrix), matmul(x, *found)).item<bool>());
        }
      }
    }
  }
  set_isa(before);
}

TEST_F(PackedFileTest, ServesOnlyWhatItWasWrittenFor) {
  const auto all = some();
  EXPECT_NE(refusal(), "served");  // no file
  write(all);
  EXPECT_EQ(refusal(), "served");
  EXPECT_NE(refusal("another key"), "served");
  const auto file = PackedFile::open(path_, "key", PackedFile::Use::read);
  ASSERT_TRUE(file);
  auto forms = all[0].forms;
  forms[0].name = "other";
  EXPECT_FALSE(file->find(forms, false));
  forms = all[0].forms;
  forms[0].format->bits = 8;
  EXPECT_FALSE(file->find(forms, false));
  forms = all[2].forms;
  EXPECT_FALSE(file->find(forms, false));  // packed as a gate and an up projection
  EXPECT_FALSE(file->damaged());
  if (available_isas().size() > 1) {
    const Isa before = isa();
    set_isa(before == available_isas()[0] ? available_isas()[1] : available_isas()[0]);
    EXPECT_NE(refusal(), "served");
    set_isa(before);
  }
}

TEST_F(PackedFileTest, RefusesFilesThatAreCutOrChanged) {
  const auto all = some();
  write(all);
  const std::string whole = bytes();
  for (const size_t size :
       {size_t{0}, size_t{7}, size_t{39}, size_t{40}, size_t{200}, whole.size() / 2, whole.size() - 1}) {
    put(whole.substr(0, size));
    EXPECT_NE(refusal(), "served") << size;
  }
  put(whole + "x");
  EXPECT_NE(refusal(), "served");
  // Every byte of the preamble (but four that are spare), and bits all over the header.
  const size_t header = 40;
  for (size_t at = 0; at < header + 400; ++at) {
    if (at >= 12 && at < 16) continue;
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
    put(changed);
    EXPECT_NE(refusal(), "served") << "byte " << at;
  }
  std::string huge = whole;
  const uint64_t most = ~uint64_t{0};
  std::memcpy(huge.data() + 16, &most, 8);
  put(huge);
  EXPECT_NE(refusal(), "served");
  put(std::string(100000, '\0'));
  EXPECT_NE(refusal(), "served");
}

TEST_F(PackedFileTest, DamagedBytesOfAMatrixAreNotTaken) {
  const auto all = some();
  write(all);
  std::string changed = bytes();
  const size_t first = 4096;  // the header is shorter than a page
  changed[first + 100] = static_cast<char>(changed[first + 100] ^ 1);
  put(changed);
  for (const auto use : {PackedFile::Use::read, PackedFile::Use::map}) {
    const auto file = PackedFile::open(path_, "key", use);
    ASSERT_TRUE(file);
    EXPECT_FALSE(file->find(all[0].forms, false));
    EXPECT_TRUE(file->damaged());
    EXPECT_TRUE(file->find(all[1].forms, false));
  }
}

TEST_F(PackedFileTest, AStoppedWriterLeavesNothing) {
  const auto all = some();
  const std::atomic<bool> stop{true};
  const std::vector<Matrix> matrices{all[0].matrix};
  EXPECT_FALSE(PackedFile::write(path_, "key", matrices, stop));
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace mlxcel::kernels
