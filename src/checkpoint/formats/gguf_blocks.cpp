#include "checkpoint/formats/gguf_blocks.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "checkpoint/formats/gguf_k_quants.h"
#include "tensor/external.h"

namespace mlxcel {

namespace {

using Byte = uint8_t;

std::optional<QuantFormat> format_of(GgmlType type) {
  switch (type) {
    case GgmlType::q4_0: case GgmlType::q4_1: case GgmlType::q4_k: return QuantFormat{QuantMode::affine, 4, 32};
    case GgmlType::q5_0: case GgmlType::q5_1: case GgmlType::q5_k: return QuantFormat{QuantMode::affine, 5, 32};
    case GgmlType::q8_0: return QuantFormat{QuantMode::affine, 8, 32};
    case GgmlType::mxfp4: return QuantFormat{QuantMode::mxfp4, 4, 32};
    default: return std::nullopt;
  }
}

mx::Dtype dtype_of(GgmlType type) {
  switch (type) {
    case GgmlType::f32: case GgmlType::q4_k: case GgmlType::q5_k: return mx::float32;
    case GgmlType::bf16: return mx::bfloat16;
    case GgmlType::mxfp4: return mx::uint8;
    default: return mx::float16;
  }
}

float half_at(const Byte* p) {
  mx::float16_t value;
  std::memcpy(&value, p, 2);
  return static_cast<float>(value);
}

/// 32 codes in the file's order (low nibbles are elements 0 to 15, high ones 16 to 31) as 4-bit MLX codes.
void pack_nibbles(const Byte* from, Byte* to) {
  for (int i = 0; i < 8; ++i) {
    to[i] = static_cast<Byte>((from[2 * i] & 15) | (from[2 * i + 1] & 15) << 4);
    to[i + 8] = static_cast<Byte>(from[2 * i] >> 4 | (from[2 * i + 1] & 0xf0));
  }
}

/// 32 codes of 5 bits as a little-endian bit stream of 20 bytes.
void pack_fives(const Byte* codes, Byte* to) {
  for (int i = 0; i < 32; i += 8, to += 5) {
    uint64_t word = 0;
    for (int k = 7; k >= 0; --k) word = word << 5 | codes[i + k];
    for (int k = 0; k < 5; ++k) to[k] = static_cast<Byte>(word >> (8 * k));
  }
}

/// Nibbles and the fifth bits of Q5_0 and Q5_1.
void join_fives(const Byte* high, const Byte* nibbles, Byte* codes) {
  uint32_t bits;
  std::memcpy(&bits, high, 4);
  for (uint32_t i = 0; i < 16; ++i) {
    codes[i] = static_cast<Byte>((nibbles[i] & 15) | (bits >> i & 1) << 4);
    codes[i + 16] = static_cast<Byte>(nibbles[i] >> 4 | (bits >> (i + 16) & 1) << 4);
  }
}

/// One block (32 elements, or a super-block of 256): codes, then a scale and a bias for each 32.
void unpack_block(GgmlType type, const Byte* block, Byte* codes, float* scales, float* biases) {
  Byte fives[256];
  switch (type) {
    case GgmlType::q4_0:
      scales[0] = half_at(block);
      biases[0] = -8 * scales[0];
      return pack_nibbles(block + 2, codes);
    case GgmlType::q4_1:
      scales[0] = half_at(block);
      biases[0] = half_at(block + 2);
      return pack_nibbles(block + 4, codes);
    case GgmlType::q5_0:
      scales[0] = half_at(block);
      biases[0] = -16 * scales[0];
      join_fives(block + 2, block + 6, fives);
      return pack_fives(fives, codes);
    case GgmlType::q5_1:
      scales[0] = half_at(block);
      biases[0] = half_at(block + 2);
      join_fives(block + 4, block + 8, fives);
      return pack_fives(fives, codes);
    case GgmlType::q8_0:
      scales[0] = half_at(block);
      biases[0] = -128 * scales[0];
      for (int i = 0; i < 32; ++i) codes[i] = block[2 + i] ^ 0x80;
      return;
    case GgmlType::q4_k:
    case GgmlType::q5_k: {
      k_scales(block, scales, biases);
      k_codes(type, block, fives);
      for (int group = 0; group < 8; ++group) {
        const Byte* from = fives + 32 * group;
        if (type == GgmlType::q5_k) {
          pack_fives(from, codes + 20 * group);
        } else {
          for (int i = 0; i < 16; ++i) codes[16 * group + i] = static_cast<Byte>(from[2 * i] | from[2 * i + 1] << 4);
        }
      }
      return;
    }
    default: fail(ErrorKind::internal, "not an affine block type");
  }
}

struct Rows {
  int64_t count = 1;    // all axes but the last
  int64_t columns = 1;
  size_t bytes = 0;     // of one row in the file
};

/// `elements`: a vector whose elements are reordered counts as rows of one.
Rows rows_of(const GgufTensor& tensor, bool elements) {
  Rows rows;
  if (elements && tensor.shape.size() == 1 && tensor.type->elements == 1)
    return {tensor.shape[0], 1, static_cast<size_t>(tensor.type->bytes)};
  rows.columns = tensor.shape[tensor.shape.size() - 1];
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows.count *= tensor.shape[i];
  rows.bytes = static_cast<size_t>(rows.columns / tensor.type->elements * tensor.type->bytes);
  return rows;
}

Shape with_last(Shape shape, int64_t last) {
  shape[shape.size() - 1] = static_cast<int>(last);
  return shape;
}

/// The values in f16; as f32 where one of them does not fit.
array narrowed(const std::vector<float>& values, const Shape& shape, bool half) {
  array out = allocated(shape, half ? mx::float16 : mx::float32);
  if (half) {
    auto* to = out.data<mx::float16_t>();
    for (size_t i = 0; i < values.size(); ++i) to[i] = mx::float16_t(values[i]);
  } else {
    std::memcpy(out.data<float>(), values.data(), values.size() * sizeof(float));
  }
  return out;
}

bool exact_in_half(const std::vector<float>& values) {
  for (const float value : values)
    if (static_cast<float>(mx::float16_t(value)) != value && !std::isnan(value)) return false;
  return true;
}

bool within_half(const std::vector<float>& values) {
  for (const float value : values)
    if (std::isfinite(value) && std::isinf(static_cast<float>(mx::float16_t(value)))) return false;
  return true;
}

Weight load_affine(const GgufTensor& tensor, const std::string& name, const Byte* data, const Rows& rows,
                   const RowOrder& order, const QuantFormat& format) {
  const int64_t groups = rows.columns / 32, per_block = tensor.type->elements / 32;
  const size_t code_bytes = static_cast<size_t>(rows.columns * format.bits / 8);
  array codes = allocated(with_last(tensor.shape, rows.columns * format.bits / 32), mx::uint32);
  Byte* to = reinterpret_cast<Byte*>(mutable_bytes(codes));
  std::vector<float> scales(static_cast<size_t>(rows.count * groups)), biases(scales.size());
  for (int64_t row = 0; row < rows.count; ++row) {
    const Byte* block = data + static_cast<size_t>(order ? order(row) : row) * rows.bytes;
    for (int64_t group = 0; group < groups; group += per_block, block += tensor.type->bytes) {
      const auto at = static_cast<size_t>(row * groups + group);
      unpack_block(tensor.type->type, block,
                   to + static_cast<size_t>(row) * code_bytes + static_cast<size_t>(group * 4 * format.bits),
                   scales.data() + at, biases.data() + at);
    }
  }
  const bool half = dtype_of(tensor.type->type) == mx::float16 && exact_in_half(scales) && exact_in_half(biases);
  const Shape sides = with_last(tensor.shape, groups);
  return {name, tensor.shape, codes, narrowed(scales, sides, half), narrowed(biases, sides, half), format};
}

Weight load_mxfp4(const GgufTensor& tensor, const std::string& name, const Byte* data, const Rows& rows,
                  const RowOrder& order, const QuantFormat& format) {
  const int64_t groups = rows.columns / 32;
  array codes = allocated(with_last(tensor.shape, rows.columns / 8), mx::uint32);
  array scales = allocated(with_last(tensor.shape, groups), mx::uint8);
  Byte* to = reinterpret_cast<Byte*>(mutable_bytes(codes));
  Byte* exponents = reinterpret_cast<Byte*>(mutable_bytes(scales));
  for (int64_t row = 0; row < rows.count; ++row) {
    const Byte* block = data + static_cast<size_t>(order ? order(row) : row) * rows.bytes;
    for (int64_t group = 0; group < groups; ++group, block += 17, to += 16) {
      *exponents++ = block[0];
      pack_nibbles(block + 1, to);
    }
  }
  return {name, tensor.shape, codes, scales, std::nullopt, format};
}

/// Q2_K, Q3_K, Q6_K.
Weight load_sixteens(const GgufTensor& tensor, const std::string& name, const Byte* data, const Rows& rows,
                     const RowOrder& order) {
  const auto decode_row = [&](int64_t row, std::vector<float>& values) {
    const Byte* block = data + static_cast<size_t>(order ? order(row) : row) * rows.bytes;
    for (int64_t at = 0; at < rows.columns; at += 256, block += tensor.type->bytes)
      k_values(tensor.type->type, block, values.data() + at);
  };
  std::vector<float> values(static_cast<size_t>(rows.columns));
  bool half = true;
  for (int64_t row = 0; half && row < rows.count; ++row) {
    decode_row(row, values);
    half = within_half(values);
  }
  array dense = allocated(tensor.shape, half ? mx::float16 : mx::float32);
  for (int64_t row = 0; row < rows.count; ++row) {
    decode_row(row, values);
    if (half) {
      auto* to = dense.data<mx::float16_t>() + row * rows.columns;
      for (size_t i = 0; i < values.size(); ++i) to[i] = mx::float16_t(values[i]);
    } else {
      std::memcpy(dense.data<float>() + row * rows.columns, values.data(), values.size() * sizeof(float));
    }
  }
  return {name, tensor.shape, dense, std::nullopt, std::nullopt, std::nullopt};
}

}  // namespace

WeightInfo describe_gguf_tensor(const GgufTensor& tensor) {
  return {tensor.shape, dtype_of(tensor.type->type), format_of(tensor.type->type), tensor.type->name,
          static_cast<size_t>(tensor.bytes)};
}

Weight load_gguf_tensor(const GgufTensor& tensor, const std::string& name, const RowOrder& order) {
  auto range = tensor.file->map(tensor.offset, tensor.bytes);
  const auto format = format_of(tensor.type->type);
  const auto* data = reinterpret_cast<const Byte*>(range->data());
  const Rows rows = rows_of(tensor, static_cast<bool>(order));
  if (format && format->mode == QuantMode::affine) return load_affine(tensor, name, data, rows, order, *format);
  if (format) return load_mxfp4(tensor, name, data, rows, order, *format);
  if (tensor.type->elements > 1) return load_sixteens(tensor, name, data, rows, order);

  const mx::Dtype dtype = dtype_of(tensor.type->type);
  Weight out{name, tensor.shape, array(0), std::nullopt, std::nullopt, std::nullopt};
  if (!order && reinterpret_cast<uintptr_t>(data) % size_of(dtype) == 0) {
    std::byte* memory = range->data();
    out.data = external(memory, tensor.shape, dtype, std::move(range));
    return out;
  }
  out.data = allocated(tensor.shape, dtype);
  std::byte* to = mutable_bytes(out.data);
  for (int64_t row = 0; row < rows.count; ++row)
    std::memcpy(to + static_cast<size_t>(row) * rows.bytes,
                data + static_cast<size_t>(order ? order(row) : row) * rows.bytes, rows.bytes);
  return out;
}

}  // namespace mlxcel
