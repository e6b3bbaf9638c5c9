// One kept prefix as a file: what it depends on, whose it is, its tokens, a row's memory, and a digest over
// all of it (features.md 3.2, 3.3). Written whole or not at all. Thread: any. Failure: as files have it; a
// file of another form, cut or damaged is invalid_request, which says what is wrong.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "state/row_image.h"
#include "text/tokenizer.h"

namespace mlxcel {

struct PrefixHead {
  std::string fingerprint, scope;
  std::vector<TokenId> tokens;
};

struct PrefixFile {
  PrefixHead head;
  std::vector<std::byte> image;  // for row_from_image()
};

/// The bytes a file with this head begins with.
std::vector<std::byte> prefix_head_bytes(const std::string& fingerprint, const std::string& scope,
                                         std::span<const TokenId> tokens);
/// How long the file will be.
size_t prefix_file_bytes(const std::string& fingerprint, const std::string& scope,
                         std::span<const TokenId> tokens, const RowImage& image);
/// Writes it with mode 0600; returns its length.
size_t write_prefix(const std::filesystem::path& path, const std::string& fingerprint,
                    const std::string& scope, std::span<const TokenId> tokens, const RowImage& image);
/// The head alone; every size is bounded before it is believed.
PrefixHead read_prefix_head(const File& file);
/// All of it, the digest checked.
PrefixFile read_prefix(const File& file);

/// SHA-256, in hexadecimal.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace mlxcel
