// Fetches a repository's files into a folder: several at once, resumed by range, checked against the hub's
// size and checksum, renamed into place when whole. What an interrupted run left is taken up again.
// Thread: the caller's, plus workers; the observer is called from those, one at a time.
// Failure: NetworkError; internal naming the path for a full disk or a folder that cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hub/endpoint.h"
#include "hub/reference.h"

namespace mlxcel {

class DownloadObserver {
 public:
  struct File {
    std::string path;
    std::uint64_t size = 0;  // 0: unknown
    std::uint64_t done = 0;
  };
  virtual ~DownloadObserver() = default;
  virtual void note(const std::string&) {}         // waiting, retrying, starting afresh
  virtual void plan(const std::vector<File>&) {}   // what is to be fetched; `done` from an earlier try
  virtual void progress(size_t, std::uint64_t) {}  // file index, bytes it has now
  virtual void finished(size_t) {}
};

struct DownloadOptions {
  std::filesystem::path folder;  // the snapshot itself
  std::string revision;          // empty: main
  std::string file;              // --hf-file
  std::string token;
  bool force = false;
};

struct DownloadReport {
  std::string commit;
  std::vector<std::string> files;
  std::uint64_t fetched_bytes = 0;
  size_t fetched_files = 0, present_files = 0;
};

DownloadReport download_model(const Reference& reference, const DownloadOptions& options,
                              DownloadObserver& observer);

}  // namespace mlxcel
