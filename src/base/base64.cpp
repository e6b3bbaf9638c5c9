#include "base/base64.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace mlxcel {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> reverse_alphabet() {
  std::array<int8_t, 256> table{};
  table.fill(-1);
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    table[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  }
  return table;
}
constexpr auto kReverse = reverse_alphabet();

}  // namespace

std::string base64_encode(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? std::to_integer<uint32_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= count ? kAlphabet[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  size_t padding = 0;
  while (!text.empty() && text.back() == '=' && padding < 2) {
    text.remove_suffix(1);
    ++padding;
  }
  const size_t tail = text.size() % 4;
  if (tail == 1 || (padding != 0 && tail + padding != 4)) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const int digit = kReverse[static_cast<unsigned char>(c)];
    if (digit < 0) return std::nullopt;
    group = group << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>(group >> bits & 0xFF);
    }
  }
  if ((group & ((1u << bits) - 1)) != 0) return std::nullopt;
  return out;
}

std::string base64_floats(std::span<const float> values) {
  if constexpr (std::endian::native == std::endian::little) {
    return base64_encode(std::as_bytes(values));
  } else {
    std::string raw(values.size() * 4, '\0');
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t word = 0;
      std::memcpy(&word, &values[i], 4);
      for (size_t k = 0; k < 4; ++k) raw[4 * i + k] = static_cast<char>(word >> (8 * k) & 0xFF);
    }
    return base64_encode(std::as_bytes(std::span(raw)));
  }
}

}  // namespace mlxcel
