// What lies in the folder: config, tokenizer, shards and their index.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/doctor.h"
#include "base/error.h"
#include "checkpoint/formats/gguf_file.h"
#include "checkpoint/formats/safetensors.h"
#include "hub/remote.h"
#include "hub/snapshot.h"

namespace mlxcel::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMostIndex = size_t{64} << 20;

bool is_shard(const std::string& name) {
  return name.ends_with(".safetensors") && !name.starts_with(".") && !name.starts_with("adapter");
}

void examine_names(const fs::path& folder, Report& report) {
  std::error_code error;
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".")) continue;
    ++count;
    if (!is_safe_path(name)) report.warn("files", "has a name that tools may trip over; rename it", name);
    std::error_code inner;
    if (entry.is_symlink(inner) && !fs::exists(entry.path(), inner))
      report.fail("files",
                  "is a link to nothing: the file it means was deleted or never fetched; download it again",
                  name);
    else if (entry.is_regular_file(inner) && entry.file_size(inner) == 0)
      report.fail("files", "is empty: an interrupted download? fetch it again", name);
  }
  if (!fs::exists(folder / "config.json"))
    report.fail("files", "is missing: nothing says what the weights are; download the folder again",
                "config.json");
  bool tokenizer = false;
  for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model", "vocab.txt"})
    tokenizer |= fs::exists(folder / name);
  if (!tokenizer)
    report.fail("files", "is missing: text cannot become tokens; take it from the original repository",
                "tokenizer.json");
  else if (!fs::exists(folder / "tokenizer.json"))
    report.warn("files",
                "is missing: only older tokenizer files are here, which are not read; save the tokenizer "
                "again with a "
                "recent transformers",
                "tokenizer.json");
  report.settle("files", fmt::format("{} files; configuration and tokenizer are here", count));
}

/// One shard by itself: header, ranges, overlaps.
void examine_shard(const fs::path& path, std::map<std::string, std::string>& owners, Report& report) {
  const std::string name = path.filename().string();
  StoredTensors tensors;
  std::vector<std::string> warnings;
  uint64_t size = 0;
  try {
    const auto file = File::open(path);
    size = file->size();
    read_safetensors_header(file, tensors, warnings);
  } catch (const std::exception& error) {
    report.fail("shards",
                fmt::format("{}; the file is damaged or cut short: download incomplete? fetch it again",
                            error.what()),
                name);
    return;
  }
  for (const std::string& warning : warnings) report.warn("shards", warning, name);
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [tensor, stored] : tensors) {
    if (stored.bytes > 0) ranges.emplace_back(stored.offset, stored.bytes);
    const auto [other, fresh] = owners.emplace(tensor, name);
    if (!fresh)
      report.fail("shards",
                  fmt::format("{} is in {} too: nobody can tell which one counts; keep one set of shards",
                              tensor, other->second),
                  name);
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t end = 0;
  for (const auto& [offset, bytes] : ranges) {
    if (offset < end) {
      report.fail("shards", "two tensors share bytes: at least one of them is wrong; fetch the file again",
                  name);
      return;
    }
    end = offset + bytes;
  }
  if (end > 0 && end < size)
    report.warn("shards",
                fmt::format("{} bytes behind the last tensor belong to nothing; harmless, but not as written",
                            size - end),
                name);
}

void examine_index(const fs::path& folder, const std::vector<std::string>& shards,
                   const std::map<std::string, std::string>& owners, Report& report) {
  if (!fs::exists(folder / kIndex)) {
    if (shards.size() > 1)
      report.warn("index",
                  "is missing beside several shards; they are found by name here, other programs may refuse",
                  kIndex);
    report.settle("index", "one file needs none");
    return;
  }
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(read_file(folder / kIndex, kMostIndex));
  } catch (const std::exception&) {
    report.fail("index", "is no JSON: loading stops there; fetch it again or delete it", kIndex);
    return;
  }
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    report.fail("index", "has no weight_map; fetch it again or delete it", kIndex);
    return;
  }
  std::set<std::string> named;
  std::vector<std::string> absent, elsewhere;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) continue;
    named.insert(file.get<std::string>());
    const auto owner = owners.find(tensor);
    if (owner == owners.end())
      absent.push_back(tensor);
    else if (owner->second != file.get<std::string>())
      elsewhere.push_back(tensor);
  }
  std::vector<std::string> missing, extra;
  for (const std::string& file : named)
    if (!fs::exists(folder / file)) missing.push_back(file);
  for (const std::string& file : shards)
    if (!named.contains(file)) extra.push_back(file);
  if (!shards.empty() && extra.size() == shards.size()) {
    report.warn("index", "is stale: it names none of the shards that are here; it is ignored. Delete it",
                kIndex);
    return;
  }
  if (!missing.empty())
    report.fail("index",
                fmt::format("names {}, which {} not here: download incomplete? `mlxcel download` finishes it",
                            listed(missing), missing.size() == 1 ? "is" : "are"),
                kIndex);
  if (!extra.empty())
    report.warn("index",
                fmt::format("does not name {}; not read. Left over from another version?", listed(extra)),
                kIndex);
  if (missing.empty() && !absent.empty())
    report.fail(
        "index",
        fmt::format("says that {} {} here, but no shard holds {}; the shards are of another version",
                    listed(absent), absent.size() == 1 ? "is" : "are", absent.size() == 1 ? "it" : "them"),
        kIndex);
  if (!elsewhere.empty())
    report.warn("index", fmt::format("names the wrong file for {}; found all the same", listed(elsewhere)),
                kIndex);
  report.settle("index",
                fmt::format("{} tensors in {} files, as it says", json["weight_map"].size(), named.size()));
}

void examine_gguf(const fs::path& path, Report& report) {
  if (const auto missing = missing_file(path)) {
    report.fail("files", "is missing or empty: download incomplete? `mlxcel download` finishes it", *missing);
    return;
  }
  report.ok("files", "a GGUF file carries configuration and tokenizer itself");
  try {
    const GgufContents contents = read_gguf(path);
    report.ok("shards", fmt::format("{} tensors, every range inside its file", contents.tensors.size()));
  } catch (const std::exception& error) {
    report.fail(
        "shards",
        fmt::format("{}; damaged, cut short or of a kind that is not read: fetch it again or take another "
                    "quantisation",
                    error.what()),
        path.filename().string());
  }
  report.ok("index", "GGUF parts carry their own numbers; all are here");
}

}  // namespace

void examine_files(const fs::path& path, Report& report) {
  std::error_code error;
  std::vector<std::string> shards;
  if (fs::is_directory(path, error))
    for (const auto& entry : fs::directory_iterator(path, error))
      if (is_shard(entry.path().filename().string())) shards.push_back(entry.path().filename().string());
  std::sort(shards.begin(), shards.end());
  if (!fs::is_directory(path, error)) return examine_gguf(path, report);
  examine_names(path, report);
  if (shards.empty()) {
    report.fail("shards",
                "there are no *.safetensors: download incomplete? PyTorch files are not read; take a "
                "safetensors export");
    return;
  }
  std::map<std::string, std::string> owners;
  for (const std::string& shard : shards)
    if (!shard.starts_with("consolidated")) examine_shard(path / shard, owners, report);
  report.settle("shards", fmt::format("{} file{}, {} tensors, every range inside its file", shards.size(),
                                      shards.size() == 1 ? "" : "s", owners.size()));
  examine_index(path, shards, owners, report);
}

}  // namespace mlxcel::app
