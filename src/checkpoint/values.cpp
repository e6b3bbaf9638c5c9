#include "checkpoint/values.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "checkpoint/formats/half.h"
#include "tensor/external.h"

namespace mlxcel {
namespace {

float from_bfloat(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

uint16_t to_bfloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

void widen(const array& from, float* to, const std::string& name) {
  const size_t count = from.size();
  const std::byte* bytes = bytes_of(from);
  switch (from.dtype().val()) {
    case mx::Dtype::Val::float32:
      std::memcpy(to, bytes, count * sizeof(float));
      return;
    case mx::Dtype::Val::float16:
    case mx::Dtype::Val::bfloat16: {
      const auto* words = reinterpret_cast<const uint16_t*>(bytes);
      const bool half = from.dtype() == mx::float16;
      for (size_t i = 0; i < count; ++i) to[i] = half ? float_from_half(words[i]) : from_bfloat(words[i]);
      return;
    }
    default:
      fail(ErrorKind::bad_checkpoint, "{}: expected F32, F16 or BF16 values", name);
  }
}

/// E2M1: sign, two bits of exponent, one of mantissa.
constexpr std::array<float, 16> kE2M1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

float from_e4m3(uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return bits & 0x80 ? -magnitude : magnitude;
}

float from_e8m0(uint8_t bits) { return std::ldexp(1.0f, static_cast<int>(bits) - 127); }

}  // namespace

uint32_t packed_code(const uint32_t* row, int64_t index, int bits) {
  const int64_t bit = index * bits;
  const int64_t word = bit / 32;
  const int shift = static_cast<int>(bit % 32);
  uint64_t window = row[word];
  if (shift + bits > 32) window |= uint64_t{row[word + 1]} << 32;
  return static_cast<uint32_t>(window >> shift) & ((1u << bits) - 1);
}

array float_values(const Weight& weight) {
  array out = allocated(weight.shape, mx::float32);
  float* to = out.data<float>();
  if (!weight.quantized()) {
    widen(weight.data, to, weight.name);
    return out;
  }
  const QuantFormat& format = *weight.format;
  const int64_t columns = weight.shape.back(),
                rows = out.size() == 0 ? 0 : static_cast<int64_t>(out.size()) / columns;
  const int64_t words = columns * format.bits / 32, groups = columns / format.group_size;
  const auto* codes = reinterpret_cast<const uint32_t*>(bytes_of(weight.data));
  if (format.mode == QuantMode::affine) {
    array scales = allocated(weight.scales->shape(), mx::float32),
          biases = allocated(weight.scales->shape(), mx::float32);
    widen(*weight.scales, scales.data<float>(), weight.name);
    widen(*weight.biases, biases.data<float>(), weight.name);
    const float *s = scales.data<float>(), *b = biases.data<float>();
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t g = r * groups + c / format.group_size;
        to[r * columns + c] =
            static_cast<float>(packed_code(codes + r * words, c, format.bits)) * s[g] + b[g];
      }
    return out;
  }
  const auto* scales = reinterpret_cast<const uint8_t*>(bytes_of(*weight.scales));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const uint8_t raw = scales[r * groups + c / format.group_size];
      const float scale = format.mode == QuantMode::nvfp4 ? from_e4m3(raw) : from_e8m0(raw);
      const uint32_t code = packed_code(codes + r * words, c, format.bits);
      to[r * columns + c] = scale * (format.bits == 4 ? kE2M1[code] : from_e4m3(static_cast<uint8_t>(code)));
    }
  return out;
}

array narrowed(const array& values, mx::Dtype dtype, const std::string& name) {
  if (dtype == mx::float32) return values;
  array out = allocated(values.shape(), dtype);
  const float* from = values.data<float>();
  auto* to = reinterpret_cast<uint16_t*>(mutable_bytes(out));
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = from[i];
    to[i] = dtype == mx::float16 ? half_from_float(value) : to_bfloat(value);
    const float back = dtype == mx::float16 ? float_from_half(to[i]) : from_bfloat(to[i]);
    if (std::isfinite(value) && !std::isfinite(back))
      fail(ErrorKind::bad_checkpoint, "{}: {} is beyond what {} holds", name, value,
           dtype == mx::float16 ? "F16" : "BF16");
  }
  return out;
}

}  // namespace mlxcel
