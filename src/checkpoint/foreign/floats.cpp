// Codes that are small floats: fp8 with scales per block, row or tensor, and the fp4 formats.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "checkpoint/foreign/kinds.h"
#include "checkpoint/foreign/small_floats.h"
#include "tensor/external.h"

namespace mlxcel::foreign {

namespace {

WeightInfo bf16_info(const Shape& shape, std::string stored_as, size_t bytes) {
  return {
      .shape = shape, .dtype = mx::bfloat16, .format = {}, .stored_as = std::move(stored_as), .bytes = bytes};
}

Weight bf16_weight(const Shape& shape, array values) {
  return {"", shape, std::move(values), std::nullopt, std::nullopt, std::nullopt};
}

/// Which scale belongs to a row and a column of the last two axes.
struct ScaleGrid {
  int row_step = 0, column_step = 0;  // rows and columns that share one
  int rows = 1, columns = 1;          // scales for one matrix
  size_t matrices = 1;                // 1 with several matrices: shared by all
};

int up(int value, int step) { return (value + step - 1) / step; }

ScaleGrid grid_of(const StoredTensor& weight, const std::string& weight_name, const StoredTensor& scale,
                  const std::string& scale_name, const ForeignConfig& config) {
  const Shape &w = weight.shape, &s = scale.shape;
  const int rows = w.size() >= 2 ? w[w.size() - 2] : 1, columns = w.back();
  size_t matrices = 1;
  for (size_t i = 0; i + 2 < w.size(); ++i) matrices *= static_cast<size_t>(w[i]);
  size_t count = 1;
  for (const int n : s) count *= static_cast<size_t>(n);
  const ScaleGrid one{rows, columns, 1, 1, 1};
  if (count == 1) return one;
  if (w.size() == 3 && count == matrices && (s.size() == 1 || s.back() == 1)) {
    ScaleGrid each = one;
    each.matrices = matrices;
    return each;
  }
  const int block_rows = up(rows, config.block_rows), block_columns = up(columns, config.block_columns);
  Shape blocks = w;
  blocks[w.size() - 2 < w.size() ? w.size() - 2 : 0] = block_rows;
  blocks.back() = block_columns;
  if (w.size() >= 2 && s == blocks)
    return {config.block_rows, config.block_columns, block_rows, block_columns, matrices};
  Shape by_row = w;
  by_row.back() = 1;
  Shape row_list(w.begin(), w.end() - 1);
  if (w.size() >= 2 && (s == by_row || s == row_list)) return {1, columns, rows, 1, matrices};
  fail(ErrorKind::bad_checkpoint,
       "{}: expected one scale, one a row or {} (blocks of {} x {}) beside {} {}, checkpoint has {}",
       scale_name, to_string(blocks), config.block_rows, config.block_columns, weight_name, to_string(w),
       to_string(s));
}

/// Two codes of E2M1 a byte, low half first, times scale(row, group) for groups of `group`.
template <class ScaleOf>
array fp4_values(const array& codes, int rows, int columns, int group, const ScaleOf& scale) {
  array out = allocated({rows, columns}, mx::bfloat16);
  auto* to = out.data<mx::bfloat16_t>();
  const auto* from = reinterpret_cast<const uint8_t*>(mlxcel::bytes_of(codes));
  for (int r = 0; r < rows; ++r)
    for (int g = 0; g < columns / group; ++g) {
      const float factor = scale(r, g);
      for (int k = 0; k < group / 2; ++k, ++from, to += 2) {
        to[0] = mx::bfloat16_t(from_e2m1(*from & 15u) * factor);
        to[1] = mx::bfloat16_t(from_e2m1(*from >> 4) * factor);
      }
    }
  return out;
}

void expect_pairs(const StoredTensor& codes, const std::string& name) {
  if (codes.dtype != "U8" || codes.shape.size() != 2 || codes.shape[0] < 1 || codes.shape[1] < 1)
    fail(ErrorKind::bad_checkpoint, "{}: expected U8 [rows, columns / 2], checkpoint has {} {}", name,
         codes.dtype, to_string(codes.shape));
}

/// Codes in groups of 16 with E4M3 scales; `factor` multiplies them all.
Converted nvfp4(StoredTensor codes, const std::string& codes_name, StoredTensor scales,
                const std::string& scales_name, float factor) {
  expect_pairs(codes, codes_name);
  const int rows = codes.shape[0], columns = codes.shape[1] * 2;
  if (columns % 16 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: {} columns, expected a multiple of 16", codes_name, columns);
  expect(scales, scales_name, "F8_E4M3", {rows, columns / 16});
  const size_t bytes = static_cast<size_t>(codes.bytes + scales.bytes);
  return {
      bf16_info({rows, columns}, "NVFP4", bytes), [=] {
        const array packed = bytes_of_stored(codes, codes_name), grid = bytes_of_stored(scales, scales_name);
        const auto* scale = reinterpret_cast<const uint8_t*>(mlxcel::bytes_of(grid));
        const auto& table = e4m3_values();
        return bf16_weight({rows, columns}, fp4_values(packed, rows, columns, 16, [&](int r, int g) {
                             return table[scale[static_cast<size_t>(r) * static_cast<size_t>(columns / 16) +
                                                static_cast<size_t>(g)]] *
                                    factor;
                           }));
      }};
}

/// mxfp4 as MLX keeps it: the same codes, eight a word, and the same scales.
Converted mxfp4(StoredTensor codes, const std::string& codes_name, StoredTensor scales,
                const std::string& scales_name, const Shape& shape) {
  Shape words = shape, groups = shape;
  words.back() = shape.back() / 8;
  groups.back() = shape.back() / 32;
  const size_t bytes = static_cast<size_t>(codes.bytes + scales.bytes);
  const QuantFormat format{QuantMode::mxfp4, 4, 32};
  const WeightInfo info{
      .shape = shape, .dtype = mx::uint8, .format = format, .stored_as = "mxfp4", .bytes = bytes};
  return {info, [=] {
            const array from = bytes_of_stored(codes, codes_name);
            array data = allocated(words, mx::uint32);
            std::memcpy(mutable_bytes(data), mlxcel::bytes_of(from), data.nbytes());
            const array bytes_of_scales = bytes_of_stored(scales, scales_name);
            array exponents = allocated(groups, mx::uint8);
            std::memcpy(mutable_bytes(exponents), mlxcel::bytes_of(bytes_of_scales), exponents.nbytes());
            return Weight{"", shape, data, exponents, std::nullopt, format};
          }};
}

float single(const StoredTensor& tensor, const std::string& name) {
  const auto values = floats_of(tensor, name);
  if (values.size() != 1 || !(values[0] != 0.0f) || !std::isfinite(values[0]))
    fail(ErrorKind::bad_checkpoint, "{}: expected one finite number that is not 0, checkpoint has {}", name,
         values.size() == 1 ? fmt::format("{}", values[0]) : to_string(tensor.shape));
  return values[0];
}

}  // namespace

namespace {

bool is_exponents(const StoredTensor& scale) { return scale.dtype == "F8_E8M0" || scale.dtype == "U8"; }

/// The factors of a grid: numbers, or exponents of two.
std::vector<float> factors_of(const StoredTensor& scale, const std::string& name) {
  if (!is_exponents(scale)) return floats_of(scale, name);
  const array stored = bytes_of_stored(scale, name);
  const auto* from = reinterpret_cast<const uint8_t*>(mlxcel::bytes_of(stored));
  std::vector<float> factors;
  for (uint64_t i = 0; i < scale.bytes; ++i) factors.push_back(from_e8m0(from[i]));
  return factors;
}

/// mxfp8 as MLX keeps it: the same codes, four a word, and for each 32 columns the exponent of their block.
Converted mxfp8(const StoredTensor& weight, const std::string& name, const StoredTensor& scale,
                const std::string& scale_name, const ScaleGrid& grid) {
  Shape words = weight.shape, groups = weight.shape;
  words.back() /= 4;
  groups.back() /= 32;
  const QuantFormat format{QuantMode::mxfp8, 8, 32};
  const WeightInfo info{.shape = weight.shape,
                        .dtype = mx::uint8,
                        .format = format,
                        .stored_as = "F8_E4M3",
                        .bytes = static_cast<size_t>(weight.bytes + scale.bytes)};
  return {
      info, [=] {
        const array codes = bytes_of_stored(weight, name), exponents = bytes_of_stored(scale, scale_name);
        array data = allocated(words, mx::uint32), spread = allocated(groups, mx::uint8);
        std::memcpy(mutable_bytes(data), mlxcel::bytes_of(codes), data.nbytes());
        const auto* from = reinterpret_cast<const uint8_t*>(mlxcel::bytes_of(exponents));
        auto* to = reinterpret_cast<uint8_t*>(mutable_bytes(spread));
        const int rows = weight.shape[weight.shape.size() - 2], columns = groups.back();
        const size_t matrices = spread.size() / (static_cast<size_t>(rows) * static_cast<size_t>(columns));
        const size_t stride =
            grid.matrices > 1 ? static_cast<size_t>(grid.rows) * static_cast<size_t>(grid.columns) : 0;
        for (size_t m = 0; m < matrices; ++m)
          for (int r = 0; r < rows; ++r) {
            const uint8_t* row = from + m * stride +
                                 static_cast<size_t>(r / grid.row_step) * static_cast<size_t>(grid.columns);
            for (int g = 0; g < columns; ++g) *to++ = row[g * 32 / grid.column_step];
          }
        return Weight{"", weight.shape, data, spread, std::nullopt, format};
      }};
}

}  // namespace

Converted fp8(Parts parts, std::string_view leaf, const ForeignConfig& config) {
  const std::string name = parts.name(leaf);
  StoredTensor weight = parts.take(leaf);
  std::optional<StoredTensor> scale;
  std::string scale_name;
  const std::string whole(leaf);
  for (const std::string& own : {whole + "_scale_inv", whole + "_scale", std::string(".scale")}) {
    if (!parts.has(own)) continue;
    if (scale)
      fail(ErrorKind::bad_checkpoint, "{}: scaled twice, by {} and {}", name, scale_name, parts.name(own));
    scale_name = parts.name(own);
    scale = parts.take(own);
  }
  if (weight.shape.empty())
    fail(ErrorKind::bad_checkpoint, "{}: a scalar in F8_E4M3, expected a matrix", name);
  const auto grid = scale ? grid_of(weight, name, *scale, scale_name, config) : ScaleGrid{};
  if (scale && is_exponents(*scale) && weight.shape.size() >= 2 && weight.shape.back() % 32 == 0 &&
      grid.column_step % 32 == 0)
    return mxfp8(weight, name, *scale, scale_name, grid);
  const size_t bytes = static_cast<size_t>(weight.bytes + (scale ? scale->bytes : 0));
  return {bf16_info(weight.shape, "F8_E4M3", bytes), [=] {
            const array codes = bytes_of_stored(weight, name);
            const auto* from = reinterpret_cast<const uint8_t*>(mlxcel::bytes_of(codes));
            const auto& table = e4m3_values();
            array out = allocated(weight.shape, mx::bfloat16);
            auto* to = out.data<mx::bfloat16_t>();
            if (!scale) {
              for (size_t i = 0; i < out.size(); ++i) to[i] = mx::bfloat16_t(table[from[i]]);
              return bf16_weight(weight.shape, out);
            }
            const auto factors = factors_of(*scale, scale_name);
            const int columns = weight.shape.back();
            const int rows = weight.shape.size() >= 2 ? weight.shape[weight.shape.size() - 2] : 1;
            const size_t matrices = out.size() / (static_cast<size_t>(rows) * static_cast<size_t>(columns));
            const size_t stride =
                grid.matrices > 1 ? static_cast<size_t>(grid.rows) * static_cast<size_t>(grid.columns) : 0;
            for (size_t m = 0; m < matrices; ++m)
              for (int r = 0; r < rows; ++r) {
                const float* row = factors.data() + m * stride +
                                   static_cast<size_t>(r / grid.row_step) * static_cast<size_t>(grid.columns);
                for (int c = 0; c < columns; ++c)
                  *to++ = mx::bfloat16_t(table[*from++] * row[c / grid.column_step]);
              }
            return bf16_weight(weight.shape, out);
          }};
}

Converted packed_floats(Parts parts) {
  const std::string codes_name = parts.name(".weight_packed"), scales_name = parts.name(".weight_scale");
  StoredTensor codes = parts.take(".weight_packed"), scales = parts.take(".weight_scale");
  expect_pairs(codes, codes_name);
  if (scales.dtype == "U8") {
    const int rows = codes.shape[0], columns = codes.shape[1] * 2;
    if (columns % 32 != 0)
      fail(ErrorKind::bad_checkpoint, "{}: {} columns, expected a multiple of 32", codes_name, columns);
    expect(scales, scales_name, "U8", {rows, columns / 32});
    return mxfp4(std::move(codes), codes_name, std::move(scales), scales_name, {rows, columns});
  }
  // The global scale divides: it brought the others into E4M3's range.
  const std::string global_name = parts.name(".weight_global_scale");
  const float global = single(parts.take(".weight_global_scale"), global_name);
  return nvfp4(std::move(codes), codes_name, std::move(scales), scales_name, 1.0f / global);
}

Converted paired_floats(Parts parts) {
  const std::string codes_name = parts.name(".weight"), scales_name = parts.name(".scale");
  StoredTensor codes = parts.take(".weight"), scales = parts.take(".scale");
  const Shape& s = codes.shape;
  if (s.size() != 2 || s[0] < 1 || s[1] < 16 || s[1] % 16 != 0 || s[1] > (1 << 29))
    fail(ErrorKind::bad_checkpoint,
         "{}: expected I8 [rows, columns / 2] with a multiple of 32 columns, checkpoint "
         "has {} {}",
         codes_name, codes.dtype, to_string(s));
  const Shape shape{s[0], s[1] * 2};
  expect(scales, scales_name, "F8_E8M0", {shape[0], shape[1] / 32});
  return mxfp4(std::move(codes), codes_name, std::move(scales), scales_name, shape);
}

Converted modelopt_floats(Parts parts) {
  const std::string codes_name = parts.name(".weight"), scales_name = parts.name(".weight_scale");
  const float factor = single(parts.take(".weight_scale_2"), parts.name(".weight_scale_2"));
  return nvfp4(parts.take(".weight"), codes_name, parts.take(".weight_scale"), scales_name, factor);
}

Converted blocks_and_scales(Parts parts) {
  const std::string codes_name = parts.name("_blocks"), scales_name = parts.name("_scales");
  StoredTensor codes = parts.take("_blocks"), scales = parts.take("_scales");
  const Shape& s = codes.shape;
  if (codes.dtype != "U8" || s.size() < 3 || s.back() != 16 || s[s.size() - 2] < 1)
    fail(ErrorKind::bad_checkpoint, "{}: expected U8 [..., rows, groups, 16], checkpoint has {} {}",
         codes_name, codes.dtype, to_string(s));
  Shape grid(s.begin(), s.end() - 1);
  expect(scales, scales_name, "U8", grid);
  if (grid.back() > (1 << 26))
    fail(ErrorKind::bad_checkpoint, "{}: {} groups a row are too many", codes_name, grid.back());
  Shape shape = grid;
  shape.back() *= 32;
  return mxfp4(std::move(codes), codes_name, std::move(scales), scales_name, shape);
}

}  // namespace mlxcel::foreign
