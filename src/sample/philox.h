// Philox 4x32-10, a counter-based generator: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (2011). Ten rounds over a 128-bit counter under a 64-bit key; no state, any thread.
#pragma once

#include <array>
#include <cstdint>

namespace mlxcel {

constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// A number in [0, 1) with 53 random bits, for one draw of one sequence. Lanes: several numbers for one
/// token.
constexpr double philox_uniform(uint32_t seed, uint32_t choice, uint64_t position, uint32_t lane = 0) {
  const auto words = philox4x32(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), lane, 0}, {seed, choice});
  const uint64_t bits = (uint64_t{words[0]} << 32) | words[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace mlxcel
