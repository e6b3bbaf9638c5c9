// The fixtures in src/text/testdata (made by generate.py there), and real files where the machine has them.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "text/tokenizer.h"

namespace mlxcel::testdata {

/// The text of a fixture, JSON.
inline std::string load(const std::string& name) {
  return read_file(std::filesystem::path(MLXCEL_SOURCE_DIR) / "src/text/testdata" / name, 16 << 20);
}

/// A file or folder of the test cache or of the model store.
inline std::optional<std::filesystem::path> cached(const std::string& name) {
  std::vector<std::filesystem::path> roots;
  if (const char* cache = std::getenv("MLXCEL_TEST_CACHE")) roots.emplace_back(cache);
  if (const char* home = std::getenv("HOME"))
    roots.push_back(std::filesystem::path(home) / ".cache/mlxcel/models");
  for (const auto& root : roots) {
    for (const auto& path : {root / name, root / std::filesystem::path(name).filename()}) {
      if (std::filesystem::exists(path)) return path;
    }
  }
  return std::nullopt;
}

/// A GGUF checkpoint of nothing but metadata.
inline Checkpoint gguf(GgufMetadata metadata) {
  Checkpoint checkpoint;
  checkpoint.path = "test.gguf";
  checkpoint.format = Checkpoint::Format::gguf;
  checkpoint.gguf = std::make_shared<const GgufMetadata>(std::move(metadata));
  return checkpoint;
}

/// The pieces a Detokenizer gives out, the last one from finish().
inline std::vector<std::string> stream(const std::shared_ptr<const Tokenizer>& tokenizer,
                                       const std::vector<TokenId>& ids, bool skip_special = true) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(detokenizer.push(id));
  pieces.push_back(detokenizer.finish());
  return pieces;
}

inline std::string joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

}  // namespace mlxcel::testdata
