// What a model folder of ours says about itself: the repository, the revision, the files that belong to it
// and those still missing (`.mlxcel.json`); and the lock that keeps two writers apart.
// Thread: any. Failure: internal, naming the path, for what the file system refuses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace mlxcel {

struct SnapshotRecord {
  struct File {
    std::uint64_t size = 0;
    std::string etag;
  };
  std::string repo, revision, commit;  // revision: as asked for, "main" by default
  std::map<std::string, File> files;   // fetched and checked
  std::set<std::string> pending;       // chosen, not there yet

  /// Nothing where there is no record or it cannot be read.
  static std::optional<SnapshotRecord> load(const std::filesystem::path& folder);
  void save(const std::filesystem::path& folder) const;
};

/// The name of the first file that is missing or empty although the index of a safetensors folder, or a
/// record, names it (weights also where they are shorter than recorded); for a .gguf file, a missing part of
/// its set. Nothing where the model is whole.
std::optional<std::string> missing_file(const std::filesystem::path& model);

/// Held by whoever writes into a folder, across processes.
class FolderLock {
 public:
  /// `waiting` is called once when another writer holds it; then this blocks.
  FolderLock(const std::filesystem::path& folder, const std::function<void()>& waiting);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace mlxcel
