// The packed matrices of one model in a file, so that a later start neither takes a checkpoint apart nor
// packs it again. The file holds bytes and checksums; how they lie follows from what the checkpoint's header
// says of the weights, as when they are packed, so nothing in the file decides a size. Layout: preamble
// (magic, version, checksum of the header, sizes), header (key, then of each matrix its description and, of
// each segment, offset, length, checksum), segments at multiples of 4096. Owner: shared. Thread: any,
// concurrently. Failure: a file that is not whole, not of this version, key and instruction set, or damaged
// is not used; nothing throws for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "kernels/matrix.h"

namespace mlxcel::kernels {

/// What is known of a weight before it is read.
struct WeightForm {
  std::string name;
  Shape shape;
  std::optional<QuantFormat> format;
  mx::Dtype dtype = mx::float32;  // dense: of elements; quantised: of scales
};

class PackedFile {
 public:
  /// Bytes into memory of their own, in huge pages; or the file's pages themselves, shared with other
  /// processes and read more slowly.
  enum class Use { read, map };

  /// None where there is no such file, or one that does not serve; `why` then says so.
  static std::shared_ptr<const PackedFile> open(const std::filesystem::path& path, std::string_view key,
                                                Use use, std::string* why = nullptr);

  /// The matrix packed of these weights; none where the file has none, or its bytes are damaged. Throws
  /// bad_checkpoint only for weights that no matrix can be made of.
  std::optional<Matrix> find(std::span<const WeightForm> forms, bool gated) const;

  /// Whether bytes were found damaged.
  bool damaged() const { return damaged_.load(); }

  /// Writes native matrices to a file that appears whole or not at all. False where `stop` was set before the
  /// end. Throws what AtomicFile throws.
  static bool write(const std::filesystem::path& path, std::string_view key, std::span<const Matrix> matrices,
                    const std::atomic<bool>& stop);

 private:
  struct Piece {
    uint64_t offset = 0, bytes = 0, checksum = 0;
    bool centred = false;
  };
  std::shared_ptr<const File> file_;
  Use use_ = Use::read;
  mutable std::atomic<bool> damaged_{false};
  std::map<std::string, std::vector<Piece>, std::less<>> matrices_;  // by description
};

}  // namespace mlxcel::kernels
