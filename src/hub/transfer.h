// One file from the hub to the disk: partial file beside the target, resume, checksum, rename.
// Thread: a worker's. Failure: NetworkError after the last try; internal for the file system's refusals.
#pragma once

#include <filesystem>
#include <functional>

#include "hub/remote.h"

namespace mlxcel {

/// Where an interrupted transfer is kept: ".name.<etag>.partial".
std::filesystem::path partial_path(const std::filesystem::path& target, const RemoteFile& file);

struct TransferEvents {
  std::function<void(std::uint64_t)> progress;  // bytes of the file that are here
  std::function<void(const std::string&)> note;
  std::function<bool()> stopped;  // another transfer failed
};

/// Bytes that came over the wire.
std::uint64_t transfer_file(Http& http, const RemoteFile& file, const std::filesystem::path& target,
                            const TransferEvents& events);

/// Calls `body` again after failures that may pass, with growing pauses (Retry-After where the hub gives it).
/// A try that made progress (`progressed` returns true) does not count.
void with_retries(const std::function<void()>& body, const std::function<bool()>& progressed,
                  const TransferEvents& events);

}  // namespace mlxcel
