// A repository on the hub: its files at a revision, which of them make up the model, and where they lie.
// Thread: any; one Http each. Failure: not_found, NetworkError; bad_checkpoint for names that could leave the
// target folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hub/http.h"

namespace mlxcel {

struct RemoteRepo {
  std::string name;    // owner/name
  std::string commit;  // full revision id
  std::vector<std::string> files;
};

/// `revision` empty: main.
RemoteRepo list_repository(Http& http, const Endpoint& endpoint, const std::string& name,
                           const std::string& revision);

/// The files to fetch. `file`: exactly that one. `quant`: the GGUF of that quantisation, all its parts.
/// Neither: what a safetensors model needs; where there is only GGUF, Q4_K_M or the first in name order.
std::vector<std::string> choose_files(const RemoteRepo& repo, const std::string& quant,
                                      const std::string& file);

/// Relative, no empty, "." or ".." part, no backslash or control character.
bool is_safe_path(const std::string& path);

struct RemoteFile {
  std::string path;
  std::string url;
  std::optional<std::uint64_t> size;
  std::string etag;  // 64 hex digits: SHA-256; 40: git's SHA-1 of the blob; else opaque
};
RemoteFile describe_file(Http& http, const Endpoint& endpoint, const RemoteRepo& repo,
                         const std::string& path);

}  // namespace mlxcel
