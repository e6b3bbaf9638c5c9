// Integer codes with scales per group: AutoAWQ, GPTQ, compressed-tensors, BitNet.
#include <cmath>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "checkpoint/foreign/kinds.h"
#include "tensor/external.h"

namespace mlxcel::foreign {

namespace {

using Words = std::shared_ptr<std::vector<uint32_t>>;
using Floats = std::shared_ptr<std::vector<float>>;

Words words_of(const StoredTensor& tensor, const std::string& name) {
  const array bytes = bytes_of_stored(tensor, name);
  auto words = std::make_shared<std::vector<uint32_t>>(tensor.bytes / 4);
  std::memcpy(words->data(), mlxcel::bytes_of(bytes), words->size() * 4);
  return words;
}

Floats shared_floats(const StoredTensor& tensor, const std::string& name) {
  return std::make_shared<std::vector<float>>(floats_of(tensor, name));
}

/// Two axes, both of at least one.
void expect_matrix(const StoredTensor& tensor, const std::string& name, const char* dtype) {
  if (tensor.dtype != dtype || tensor.shape.size() != 2 || tensor.shape[0] < 1 || tensor.shape[1] < 1)
    fail(ErrorKind::bad_checkpoint, "{}: expected {} [rows, columns], checkpoint has {} {}", name, dtype,
         tensor.dtype, to_string(tensor.shape));
}

mx::Dtype scale_dtype(const StoredTensor& tensor, const std::string& name) {
  if (tensor.dtype != "F16" && tensor.dtype != "BF16" && tensor.dtype != "F32")
    fail(ErrorKind::bad_checkpoint, "{}: expected F16, BF16 or F32 scales, checkpoint has {}", name,
         tensor.dtype);
  return held_dtype(tensor, name);
}

void only_four_bits(const ForeignConfig& config, const std::string& name) {
  if (config.bits != 4)
    fail(ErrorKind::unsupported, "{}: {} with {} bits is not supported: expected 4", name, config.method,
         config.bits);
}

/// Groups from the scales' rows; what the config says must agree.
int group_of(const std::string& name, int in, int groups, int declared) {
  if (groups < 1 || in % groups != 0)
    fail(ErrorKind::bad_checkpoint, "{}: {} groups of scales do not divide {} columns", name, groups, in);
  const int group = in / groups;
  if (declared > 0 && declared != group && !(declared > in && groups == 1))
    fail(ErrorKind::bad_checkpoint, "{}: the scales stand for groups of {}, quantization_config says {}",
         name, group, declared);
  return group;
}

/// The planes of both: codes, zero points, scales of [groups, out].
struct Quantiser {
  StoredTensor codes, scales;
  std::optional<StoredTensor> zeros;
  std::string codes_name, scales_name, zeros_name;
};

Quantiser take_planes(Parts& parts) {
  Quantiser q{parts.take(".qweight"), parts.take(".scales"), parts.take_if(".qzeros"),
              parts.name(".qweight"), parts.name(".scales"), parts.name(".qzeros")};
  expect_matrix(q.codes, q.codes_name, "I32");
  if (q.scales.shape.size() != 2)
    fail(ErrorKind::bad_checkpoint, "{}: expected [groups, out], checkpoint has {}", q.scales_name,
         to_string(q.scales.shape));
  return q;
}

}  // namespace

Converted awq(Parts parts, const ForeignConfig& config) {
  Quantiser q = take_planes(parts);
  only_four_bits(config, q.codes_name);
  const int in = q.codes.shape[0], out = q.codes.shape[1] * 8, groups = q.scales.shape[0];
  const int group = group_of(q.scales_name, in, groups, config.group);
  const auto dtype = scale_dtype(q.scales, q.scales_name);
  if (q.scales.shape[1] != out)
    fail(ErrorKind::bad_checkpoint, "{}: expected [{}, {}], checkpoint has {}", q.scales_name, groups, out,
         to_string(q.scales.shape));
  if (q.zeros) expect(*q.zeros, q.zeros_name, "I32", {groups, out / 8});
  AffineRecipe recipe{
      .out = out, .in = in, .bits = 4, .group = group, .dtype = dtype, .codes = {}, .scale = {}, .zero = {}};
  const int planes = plane_group(q.codes_name, in, group);
  auto load = [q = std::move(q), recipe, planes]() mutable {
    // Output columns 0 to 7 lie in nibbles 0, 4, 1, 5, 2, 6, 3, 7 of a word.
    static constexpr int kNibble[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const auto codes = words_of(q.codes, q.codes_name);
    const auto zeros = q.zeros ? words_of(*q.zeros, q.zeros_name) : nullptr;
    const auto scales = shared_floats(q.scales, q.scales_name);
    const auto at = [words = recipe.out / 8](const std::vector<uint32_t>& from, int row, int column) {
      const uint32_t word =
          from[static_cast<size_t>(row) * static_cast<size_t>(words) + static_cast<size_t>(column / 8)];
      return word >> (4 * kNibble[column % 8]) & 15u;
    };
    recipe.codes = [=, n = recipe.in](int row, uint8_t* to) {
      for (int i = 0; i < n; ++i) to[i] = static_cast<uint8_t>(at(*codes, i, row));
    };
    recipe.scale = [=, n = recipe.out](int row, int g) {
      return (*scales)[static_cast<size_t>(g) * static_cast<size_t>(n) + static_cast<size_t>(row)];
    };
    recipe.zero = [=](int row, int g) { return zeros ? static_cast<float>(at(*zeros, g, row)) : 8.0f; };
    return affine_planes(recipe, planes);
  };
  return {affine_info(out, in, 4, planes, dtype, "AWQ"), std::move(load)};
}

Converted gptq(Parts parts, const ForeignConfig& config) {
  Quantiser q = take_planes(parts);
  only_four_bits(config, q.codes_name);
  const int in = q.codes.shape[0] * 8, out = q.codes.shape[1], groups = q.scales.shape[0];
  const int group = group_of(q.scales_name, in, groups, config.group);
  const auto dtype = scale_dtype(q.scales, q.scales_name);
  if (q.scales.shape[1] != out)
    fail(ErrorKind::bad_checkpoint, "{}: expected [{}, {}], checkpoint has {}", q.scales_name, groups, out,
         to_string(q.scales.shape));
  if (q.zeros) expect(*q.zeros, q.zeros_name, "I32", {groups, (out + 7) / 8});
  if (const auto order = parts.take_if(".g_idx")) {
    const std::string name = parts.name(".g_idx");
    expect(*order, name, "I32", {in});
    const auto list = words_of(*order, name);
    for (int i = 0; i < in; ++i)
      if ((*list)[static_cast<size_t>(i)] != static_cast<uint32_t>(i / group))
        fail(ErrorKind::unsupported,
             "{}: columns out of the order of their groups (act-order) are not supported", name);
  }
  AffineRecipe recipe{
      .out = out, .in = in, .bits = 4, .group = group, .dtype = dtype, .codes = {}, .scale = {}, .zero = {}};
  const int planes = plane_group(q.codes_name, in, group);
  const float raise = config.raised_zeros ? 1.0f : 0.0f;
  auto load = [q = std::move(q), recipe, planes, raise]() mutable {
    const auto codes = words_of(q.codes, q.codes_name);
    const auto zeros = q.zeros ? words_of(*q.zeros, q.zeros_name) : nullptr;
    const auto scales = shared_floats(q.scales, q.scales_name);
    const auto n = static_cast<size_t>(recipe.out);
    recipe.codes = [=, columns = recipe.in](int row, uint8_t* to) {
      for (int i = 0; i < columns; i += 8) {
        const uint32_t word = (*codes)[static_cast<size_t>(i / 8) * n + static_cast<size_t>(row)];
        for (int k = 0; k < 8; ++k) to[i + k] = static_cast<uint8_t>(word >> (4 * k) & 15u);
      }
    };
    recipe.scale = [=](int row, int g) {
      return (*scales)[static_cast<size_t>(g) * n + static_cast<size_t>(row)];
    };
    recipe.zero = [=](int row, int g) {
      if (!zeros) return 8.0f;
      const size_t word = static_cast<size_t>(g) * ((n + 7) / 8) + static_cast<size_t>(row / 8);
      return static_cast<float>((*zeros)[word] >> (4 * (row % 8)) & 15u) + raise;
    };
    return affine_planes(recipe, planes);
  };
  return {affine_info(out, in, 4, planes, dtype, "GPTQ"), std::move(load)};
}

Converted packed_integers(Parts parts, const ForeignConfig& config) {
  const std::string codes_name = parts.name(".weight_packed"), scales_name = parts.name(".weight_scale");
  StoredTensor codes = parts.take(".weight_packed"), scales = parts.take(".weight_scale");
  expect_matrix(codes, codes_name, "I32");
  if (parts.has(".weight_g_idx"))
    fail(ErrorKind::unsupported, "{}: columns out of the order of their groups (actorder) are not supported",
         parts.name(".weight_g_idx"));
  const int out = codes.shape[0];
  if (scales.shape.size() != 2 || scales.shape[0] != out)
    fail(ErrorKind::bad_checkpoint, "{}: expected [{}, groups], checkpoint has {}", scales_name, out,
         to_string(scales.shape));
  if (config.bits != 4 && config.bits != 8)
    fail(ErrorKind::unsupported, "{}: {} bits are not supported: expected 4 or 8", codes_name, config.bits);
  const long long width = static_cast<long long>(codes.shape[1]) * 32 / config.bits;
  if (width > (1 << 28)) fail(ErrorKind::bad_checkpoint, "{}: {} columns are too many", codes_name, width);
  const int in = static_cast<int>(width);
  if (const auto shape = parts.take_if(".weight_shape")) {
    const std::string name = parts.name(".weight_shape");
    const array bytes = bytes_of_stored(*shape, name);
    int64_t sizes[2] = {0, 0};
    if (shape->dtype != "I64" || shape->bytes != sizeof sizes)
      fail(ErrorKind::bad_checkpoint, "{}: expected I64 [2], checkpoint has {} {}", name, shape->dtype,
           to_string(shape->shape));
    std::memcpy(sizes, mlxcel::bytes_of(bytes), sizeof sizes);
    if (sizes[0] != out || sizes[1] != in)
      fail(ErrorKind::bad_checkpoint, "{}: [{}, {}], but {} holds [{}, {}] of {} bits", name, sizes[0],
           sizes[1], codes_name, out, in, config.bits);
  }
  const int group = group_of(scales_name, in, scales.shape[1], 0);
  const auto dtype = scale_dtype(scales, scales_name);
  const int each = 32 / config.bits;
  auto zeros = parts.take_if(".weight_zero_point");
  const std::string zeros_name = parts.name(".weight_zero_point");
  if (zeros) expect(*zeros, zeros_name, "I32", {(out + each - 1) / each, in / group});
  AffineRecipe recipe{.out = out,
                      .in = in,
                      .bits = config.bits,
                      .group = group,
                      .dtype = dtype,
                      .codes = {},
                      .scale = {},
                      .zero = {}};
  const int planes = plane_group(codes_name, in, group);
  auto load = [=]() mutable {
    const auto words = words_of(codes, codes_name);
    const auto points = zeros ? words_of(*zeros, zeros_name) : nullptr;
    const auto factors = shared_floats(scales, scales_name);
    const int bits = recipe.bits, groups = recipe.in / recipe.group;
    const uint32_t mask = (1u << bits) - 1;
    const auto row_words = static_cast<size_t>(recipe.in / each);
    recipe.codes = [=](int row, uint8_t* to) {
      const uint32_t* from = words->data() + static_cast<size_t>(row) * row_words;
      for (size_t i = 0; i < row_words; ++i)
        for (int k = 0; k < each; ++k) *to++ = static_cast<uint8_t>(from[i] >> (bits * k) & mask);
    };
    recipe.scale = [=](int row, int g) {
      return (*factors)[static_cast<size_t>(row) * static_cast<size_t>(groups) + static_cast<size_t>(g)];
    };
    recipe.zero = [=](int row, int g) {
      if (!points) return static_cast<float>(1 << (bits - 1));
      const size_t word =
          static_cast<size_t>(row / each) * static_cast<size_t>(groups) + static_cast<size_t>(g);
      return static_cast<float>((*points)[word] >> (bits * (row % each)) & mask);
    };
    return affine_planes(recipe, planes);
  };
  return {affine_info(out, in, config.bits, planes, dtype, "packed integers"), std::move(load)};
}

Converted plain_integers(Parts parts) {
  const std::string codes_name = parts.name(".weight"), scales_name = parts.name(".weight_scale");
  StoredTensor codes = parts.take(".weight"), scales = parts.take(".weight_scale");
  expect_matrix(codes, codes_name, "I8");
  const int out = codes.shape[0], in = codes.shape[1];
  const bool whole = scales.shape.empty() || (scales.shape.size() == 1 && scales.shape[0] == 1);
  if (!whole && !(scales.shape.size() == 2 && scales.shape[0] == out))
    fail(ErrorKind::bad_checkpoint, "{}: expected [{}, groups] or one value, checkpoint has {}", scales_name,
         out, to_string(scales.shape));
  const int groups = whole ? 1 : scales.shape[1];
  AffineRecipe recipe{.out = out,
                      .in = in,
                      .bits = 8,
                      .group = group_of(scales_name, in, groups, 0),
                      .dtype = scale_dtype(scales, scales_name),
                      .codes = {},
                      .scale = {},
                      .zero = {}};
  const int planes = plane_group(codes_name, in, recipe.group);
  const auto dtype = recipe.dtype;
  auto load = [=]() mutable {
    const array bytes = bytes_of_stored(codes, codes_name);
    const auto factors = shared_floats(scales, scales_name);
    const auto* values = reinterpret_cast<const int8_t*>(mlxcel::bytes_of(bytes));
    recipe.codes = [=](int row, uint8_t* to) {
      const int8_t* from = values + static_cast<size_t>(row) * static_cast<size_t>(in);
      for (int i = 0; i < in; ++i) to[i] = static_cast<uint8_t>(from[i] + 128);
    };
    recipe.scale = [=](int row, int g) {
      return (
          *factors)[whole ? 0
                          : static_cast<size_t>(row) * static_cast<size_t>(groups) + static_cast<size_t>(g)];
    };
    recipe.zero = [](int, int) { return 128.0f; };
    return affine_planes(recipe, planes);
  };
  return {affine_info(out, in, 8, planes, dtype, "I8"), std::move(load)};
}

/// -1, 0 and 1 stored as 0, 1 and 2: bits 2 i of byte row r hold row i * rows + r. They stay codes of two
/// bits.
Converted ternary(Parts parts, const ForeignConfig& config) {
  const std::string codes_name = parts.name(".weight"), scale_name = parts.name(".weight_scale");
  StoredTensor codes = parts.take(".weight"), scale = parts.take(".weight_scale");
  expect_matrix(codes, codes_name, "U8");
  if (codes.shape[0] > (1 << 28))
    fail(ErrorKind::bad_checkpoint, "{}: {} rows of bytes are too many", codes_name, codes.shape[0]);
  const bool one = scale.shape.empty() || (scale.shape.size() == 1 && scale.shape[0] == 1);
  if (!one)
    fail(ErrorKind::bad_checkpoint, "{}: expected one value, checkpoint has {}", scale_name,
         to_string(scale.shape));
  const float stored = floats_of(scale, scale_name)[0], factor = config.divided ? 1.0f / stored : stored;
  if (!std::isfinite(factor) || factor == 0.0f)
    fail(ErrorKind::bad_checkpoint, "{}: expected a finite scale other than 0, found {}", scale_name, stored);
  const int rows = codes.shape[0], in = codes.shape[1], planes = plane_group(codes_name, in, in);
  AffineRecipe recipe{.out = rows * 4,
                      .in = in,
                      .bits = 2,
                      .group = in,
                      .dtype = mx::float32,
                      .codes = {},
                      .scale = [factor](int, int) { return factor; },
                      .zero = [](int, int) { return 1.0f; }};
  auto load = [codes = std::move(codes), codes_name, recipe, planes, rows]() mutable {
    const array bytes = bytes_of_stored(codes, codes_name);
    const auto* values = reinterpret_cast<const uint8_t*>(mlxcel::bytes_of(bytes));
    recipe.codes = [=, in = recipe.in](int row, uint8_t* to) {
      const uint8_t* from = values + static_cast<size_t>(row % rows) * static_cast<size_t>(in);
      for (int i = 0; i < in; ++i) {
        to[i] = static_cast<uint8_t>(from[i] >> (2 * (row / rows)) & 3u);
        if (to[i] == 3)
          fail(ErrorKind::bad_checkpoint, "{}: a code of 3 in row {}: expected 0, 1 or 2", codes_name, row);
      }
    };
    return affine_planes(recipe, planes);
  };
  return {affine_info(rows * 4, in, 2, planes, mx::float32, "ternary"), std::move(load)};
}

}  // namespace mlxcel::foreign
