// Base64 (RFC 4648, with padding), as embeddings, media fields and vocabulary files carry it. Thread: any.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mlxcel {

std::string base64_encode(std::span<const std::byte> bytes);
/// Nothing for text that is not canonical base64 (missing padding is accepted, stray bits and characters are
/// not).
std::optional<std::string> base64_decode(std::string_view text);
/// Little-endian float32, the wire form of an embedding.
std::string base64_floats(std::span<const float> values);

}  // namespace mlxcel
