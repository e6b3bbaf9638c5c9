#include "checkpoint/formats/gguf_blocks.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "base/worker_pool.h"
#include "checkpoint/formats/gguf_k_quants.h"
#include "checkpoint/formats/half.h"
#include "tensor/external.h"

namespace mlxcel {

namespace {

using Byte = uint8_t;

std::optional<QuantFormat> format_of(GgmlType type) {
  switch (type) {
    case GgmlType::q4_0:
    case GgmlType::q4_1:
    case GgmlType::q4_k:
      return QuantFormat{QuantMode::affine, 4, 32};
    case GgmlType::q5_0:
    case GgmlType::q5_1:
    case GgmlType::q5_k:
      return QuantFormat{QuantMode::affine, 5, 32};
    case GgmlType::q8_0:
      return QuantFormat{QuantMode::affine, 8, 32};
    case GgmlType::mxfp4:
      return QuantFormat{QuantMode::mxfp4, 4, 32};
    default:
      return std::nullopt;
  }
}

mx::Dtype dtype_of(GgmlType type) {
  switch (type) {
    case GgmlType::f32:
    case GgmlType::q4_k:
    case GgmlType::q5_k:
      return mx::float32;
    case GgmlType::bf16:
      return mx::bfloat16;
    case GgmlType::mxfp4:
      return mx::uint8;
    case GgmlType::i32:
      return mx::int32;
    default:
      return mx::float16;
  }
}

/// Every second nibble pair of eight bytes: bytes 2i and 2i + 1, of values under 16, as byte i.
uint32_t join_nibbles(uint64_t v) {
  v = (v | v >> 4) & 0x00ff00ff00ff00ffu;
  v = (v | v >> 8) & 0x0000ffff0000ffffu;
  return static_cast<uint32_t>(v | v >> 16);
}

/// 32 codes in the file's order (low nibbles are elements 0 to 15, high ones 16 to 31) as 4-bit MLX codes.
void pack_nibbles(const Byte* from, Byte* to) {
  constexpr uint64_t kLow = 0x0f0f0f0f0f0f0f0fu;
  for (int i = 0; i < 2; ++i) {
    uint64_t eight;
    std::memcpy(&eight, from + 8 * i, 8);
    const uint32_t low = join_nibbles(eight & kLow), high = join_nibbles(eight >> 4 & kLow);
    std::memcpy(to + 4 * i, &low, 4);
    std::memcpy(to + 8 + 4 * i, &high, 4);
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

/// The codes of one block of type kType: 32 elements, or a super-block of 256.
template <GgmlType kType>
inline void unpack_codes(const Byte* block, Byte* codes) {
  if constexpr (kType == GgmlType::q4_0) {
    pack_nibbles(block + 2, codes);
  } else if constexpr (kType == GgmlType::q4_1) {
    pack_nibbles(block + 4, codes);
  } else if constexpr (kType == GgmlType::q8_0) {
    for (int i = 0; i < 32; ++i) codes[i] = block[2 + i] ^ 0x80;
  } else {
    Byte loose[256];
    if constexpr (kType == GgmlType::q5_0) {
      join_fives(block + 2, block + 6, loose);
      pack_fives(loose, codes);
    } else if constexpr (kType == GgmlType::q5_1) {
      join_fives(block + 4, block + 8, loose);
      pack_fives(loose, codes);
    } else if constexpr (kType == GgmlType::q4_k) {
      k_codes(kType, block, loose);
      for (int i = 0; i < 128; ++i) codes[i] = static_cast<Byte>(loose[2 * i] | loose[2 * i + 1] << 4);
    } else {
      static_assert(kType == GgmlType::q5_k);
      k_codes(kType, block, loose);
      for (int group = 0; group < 8; ++group) pack_fives(loose + 32 * group, codes + 20 * group);
    }
  }
}

/// visit.operator()<type>() for an affine type, so that a loop over blocks asks for it once.
template <class Visit>
void with_affine_type(GgmlType type, const Visit& visit) {
  switch (type) {
    case GgmlType::q4_0:
      return visit.template operator()<GgmlType::q4_0>();
    case GgmlType::q4_1:
      return visit.template operator()<GgmlType::q4_1>();
    case GgmlType::q5_0:
      return visit.template operator()<GgmlType::q5_0>();
    case GgmlType::q5_1:
      return visit.template operator()<GgmlType::q5_1>();
    case GgmlType::q8_0:
      return visit.template operator()<GgmlType::q8_0>();
    case GgmlType::q4_k:
      return visit.template operator()<GgmlType::q4_k>();
    case GgmlType::q5_k:
      return visit.template operator()<GgmlType::q5_k>();
    default:
      fail(ErrorKind::internal, "not an affine block type");
  }
}

/// The bias is minus the scale times 2 to this; nothing where the block holds a minimum.
constexpr std::optional<int> zero_point(GgmlType type) {
  switch (type) {
    case GgmlType::q4_0:
      return 3;
    case GgmlType::q5_0:
      return 4;
    case GgmlType::q8_0:
      return 7;
    default:
      return std::nullopt;
  }
}

/// Scale and bias of one block in f16; false where the bias is beyond f16.
inline bool block_sides(GgmlType type, const Byte* block, uint16_t* scale, uint16_t* bias) {
  std::memcpy(scale, block, 2);
  const auto power = zero_point(type);
  if (!power) {
    std::memcpy(bias, block + 2, 2);
    return true;
  }
  const int exponent = *scale >> 10 & 31;
  if (exponent > 0 && exponent < 31) {
    *bias = static_cast<uint16_t>((*scale ^ 0x8000) + (*power << 10));
    return exponent + *power < 31;
  }
  *bias = half_from_float(-static_cast<float>(1 << *power) * float_from_half(*scale));  // exact: upwards
  return true;
}

/// The same in f32, for each 32 elements of the block.
inline bool block_sides(GgmlType type, const Byte* block, float* scales, float* biases) {
  if (type == GgmlType::q4_k || type == GgmlType::q5_k) {
    k_scales(block, scales, biases);
    return true;
  }
  uint16_t scale, minimum;
  std::memcpy(&scale, block, 2);
  std::memcpy(&minimum, block + 2, 2);
  const auto power = zero_point(type);
  scales[0] = float_from_half(scale);
  biases[0] = power ? -static_cast<float>(1 << *power) * scales[0] : float_from_half(minimum);
  return true;
}

struct Rows {
  int64_t count = 1;  // all axes but the last
  int64_t columns = 1;
  size_t bytes = 0;  // of one row in the file
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

/// The rows of one tensor in the file, in the order of the result.
struct BlockRows {
  const GgufTensor& tensor;
  const Byte* data;
  Rows rows;
  const RowOrder& order;

  const Byte* row(int64_t index) const {
    return data + static_cast<size_t>(order ? order(index) : index) * rows.bytes;
  }
};

/// visit(row) on the pool's workers: first touches of new memory and reads of the file go side by side.
template <class Visit>
void each_row(int64_t count, const Visit& visit) {
  auto& pool = WorkerPool::shared();
  const int pieces = static_cast<int>(std::min<int64_t>(count, 16 * pool.width()));
  pool.each(pieces, 1, [&](int begin, int end) {
    for (int64_t row = count * begin / pieces; row < count * end / pieces; ++row) visit(row);
  });
}

/// Fills scales and biases; false where T cannot hold one of them.
template <class T>
bool fill_sides(const BlockRows& from, T* scales, T* biases) {
  const GgmlTypeRow& type = *from.tensor.type;
  const int64_t blocks = from.rows.columns / type.elements, step = type.elements / 32;
  std::atomic<bool> fits{true};
  with_affine_type(type.type, [&]<GgmlType kType>() {
    each_row(from.rows.count, [&](int64_t row) {
      const Byte* block = from.row(row);
      bool all = true;
      for (int64_t i = 0, at = row * blocks * step; i < blocks; ++i, block += type.bytes, at += step)
        all &= block_sides(kType, block, scales + at, biases + at);
      if (!all) fits.store(false, std::memory_order_relaxed);
    });
  });
  return fits;
}

Weight load_affine(const BlockRows& from, const std::string& name, const QuantFormat& format) {
  const GgmlTypeRow& type = *from.tensor.type;
  const Shape& shape = from.tensor.shape;
  const int64_t blocks = from.rows.columns / type.elements, block_codes = type.elements * format.bits / 8;
  array codes = allocated(with_last(shape, from.rows.columns * format.bits / 32), mx::uint32);
  Byte* const to = reinterpret_cast<Byte*>(mutable_bytes(codes));
  with_affine_type(type.type, [&]<GgmlType kType>() {
    each_row(from.rows.count, [&](int64_t row) {
      const Byte* block = from.row(row);
      Byte* at = to + row * blocks * block_codes;
      for (int64_t i = 0; i < blocks; ++i, block += type.bytes, at += block_codes)
        unpack_codes<kType>(block, at);
    });
  });
  const Shape sides = with_last(shape, from.rows.columns / 32);
  if (dtype_of(type.type) == mx::float16) {
    array scales = allocated(sides, mx::float16), biases = allocated(sides, mx::float16);
    if (fill_sides(from, reinterpret_cast<uint16_t*>(mutable_bytes(scales)),
                   reinterpret_cast<uint16_t*>(mutable_bytes(biases))))
      return {name, shape, codes, scales, biases, format};
  }
  array scales = allocated(sides, mx::float32), biases = allocated(sides, mx::float32);
  fill_sides(from, scales.data<float>(), biases.data<float>());
  return {name, shape, codes, scales, biases, format};
}

Weight load_mxfp4(const BlockRows& from, const std::string& name, const QuantFormat& format) {
  const Shape& shape = from.tensor.shape;
  const int64_t groups = from.rows.columns / 32;
  array codes = allocated(with_last(shape, from.rows.columns / 8), mx::uint32);
  array scales = allocated(with_last(shape, groups), mx::uint8);
  Byte* to = reinterpret_cast<Byte*>(mutable_bytes(codes));
  Byte* exponents = reinterpret_cast<Byte*>(mutable_bytes(scales));
  for (int64_t row = 0; row < from.rows.count; ++row) {
    const Byte* block = from.row(row);
    for (int64_t group = 0; group < groups; ++group, block += 17, to += 16) {
      *exponents++ = block[0];
      pack_nibbles(block + 1, to);
    }
  }
  return {name, shape, codes, scales, std::nullopt, format};
}

/// Q2_K, Q3_K, Q6_K in f16; false where a value is beyond it.
bool fill_sixteens(const BlockRows& from, uint16_t* to) {
  const GgmlTypeRow& type = *from.tensor.type;
  float values[256];
  for (int64_t row = 0; row < from.rows.count; ++row) {
    const Byte* block = from.row(row);
    for (int64_t at = 0; at < from.rows.columns; at += 256, block += type.bytes, to += 256) {
      k_values(type.type, block, values);
      if (!halves_from_floats(values, to, 256)) return false;
    }
  }
  return true;
}

Weight load_sixteens(const BlockRows& from, const std::string& name) {
  const GgmlTypeRow& type = *from.tensor.type;
  Weight out{name,         from.tensor.shape, allocated(from.tensor.shape, mx::float16),
             std::nullopt, std::nullopt,      std::nullopt};
  if (fill_sixteens(from, reinterpret_cast<uint16_t*>(mutable_bytes(out.data)))) return out;
  out.data = allocated(from.tensor.shape, mx::float32);
  float* to = out.data.data<float>();
  for (int64_t row = 0; row < from.rows.count; ++row) {
    const Byte* block = from.row(row);
    for (int64_t at = 0; at < from.rows.columns; at += 256, block += type.bytes, to += 256)
      k_values(type.type, block, to);
  }
  return out;
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
  const BlockRows from{tensor, data, rows_of(tensor, static_cast<bool>(order)), order};
  if (format && format->mode == QuantMode::affine) return load_affine(from, name, *format);
  if (format) return load_mxfp4(from, name, *format);
  if (tensor.type->elements > 1) return load_sixteens(from, name);

  const mx::Dtype dtype = dtype_of(tensor.type->type);
  Weight out{name, tensor.shape, array(0), std::nullopt, std::nullopt, std::nullopt};
  if (!order && reinterpret_cast<uintptr_t>(data) % size_of(dtype) == 0) {
    std::byte* memory = range->data();
    out.data = external(memory, tensor.shape, dtype, std::move(range));
    return out;
  }
  out.data = allocated(tensor.shape, dtype);
  std::byte* to = mutable_bytes(out.data);
  for (int64_t row = 0; row < from.rows.count; ++row, to += from.rows.bytes)
    std::memcpy(to, from.row(row), from.rows.bytes);
  return out;
}

}  // namespace mlxcel
