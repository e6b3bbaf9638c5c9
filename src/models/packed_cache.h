// A folder of packed matrices, one file a checkpoint (kernels/packed_file.h): a model that was loaded once is
// loaded again without its weights being taken apart and packed. What a file holds is named by the
// checkpoint's files (place, size, time of change), the program's own and the processor's instruction set, so
// that nothing old is ever taken. The folder is kept within a limit: what was used least lately goes.
// Owner: a loaded model; it waits a moment for a file that is being written. Thread: the loading thread, and
// one of its own that writes. Failure: a cache that cannot be used costs time, never an answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/packed_file.h"

namespace mlxcel {

struct PackedCacheOptions {
  std::filesystem::path folder = {};    // empty: none
  bool named = false;                   // by the user, not by default: what hinders it is told
  uint64_t least = uint64_t{16} << 20;  // smaller models are packed as fast as read
  uint64_t most = uint64_t{16} << 30;   // of all files together
  kernels::PackedFile::Use use = kernels::PackedFile::Use::read;

  /// MLXCEL_PACKED_CACHE: "off" (or 0), a folder, or nothing: "packed" under MLXCEL_CACHE_DIR or
  /// ~/.cache/mlxcel. MLXCEL_PACKED_CACHE_MB: the limit. invalid_request for values that are neither.
  static PackedCacheOptions from_environment();
};

class PackedCache {
 public:
  /// Of the checkpoint at `path`: a folder or a GGUF file, as open_checkpoint() takes it; `settings`: what
  /// else its weights follow from (the configuration's text).
  PackedCache(PackedCacheOptions options, const std::filesystem::path& path, std::string_view settings);
  ~PackedCache();
  PackedCache(const PackedCache&) = delete;
  PackedCache& operator=(const PackedCache&) = delete;

  std::optional<kernels::Matrix> find(std::span<const kernels::WeightForm> forms, bool gated);
  /// Tells of a matrix that was not found.
  void keep(const kernels::Matrix& matrix);
  /// After the last matrix: what was kept is written in the background, where there was no file that served.
  void store();

  const std::filesystem::path& file() const { return file_; }
  size_t found() const { return found_; }
  /// Why a folder that the user named cannot serve, and what to do; empty: it can. A default folder that
  /// cannot (a home that is read-only) is nobody's mistake and only logged.
  const std::string& trouble() const { return trouble_; }
  /// Waits for the writing; whether a file was written.
  bool wait();

 private:
  void tell(const std::string& why);
  void write();
  bool make_room(uint64_t bytes) const;

  PackedCacheOptions options_;
  std::filesystem::path file_;
  std::string key_, trouble_;
  std::shared_ptr<const kernels::PackedFile> packed_;
  std::vector<kernels::Matrix> kept_;
  size_t found_ = 0;
  std::thread writer_;
  std::atomic<bool> stop_{false}, done_{false}, written_{false};
};

}  // namespace mlxcel
