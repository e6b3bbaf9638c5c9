#include "hub/snapshot.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "hub/gguf_name.h"
#include "hub/remote.h"

namespace mlxcel {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRecord = ".mlxcel.json";
constexpr const char* kLock = ".mlxcel.lock";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMostRecord = size_t{16} << 20;
constexpr size_t kMostIndex = size_t{64} << 20;

bool filled(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return !error && size > 0;
}

/// Shards an index names and the folder lacks; nothing where the index names none of those present (stale).
std::optional<std::string> missing_shard(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / kIndex, error)) return std::nullopt;
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(read_file(folder / kIndex, kMostIndex), nullptr, false);
  } catch (const Error&) {
    return std::nullopt;  // the checkpoint's reader says it better
  }
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return std::nullopt;
  std::set<std::string> named;
  for (const auto& entry : json["weight_map"])
    if (entry.is_string()) named.insert(entry.get<std::string>());
  bool any_shard = false, any_named = false;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".safetensors")) continue;
    any_shard = true;
    any_named |= named.contains(name);
  }
  if (any_shard && !any_named) return std::nullopt;
  for (const std::string& name : named)
    if (is_safe_path(name) && !filled(folder / name)) return name;
  return std::nullopt;
}

bool is_weights(const std::string& name) { return name.ends_with(".safetensors") || name.ends_with(".gguf"); }

/// A recorded file of the model that is gone, empty or cut. What somebody made larger is theirs.
std::optional<std::string> lost_file(const fs::path& folder, const SnapshotRecord& record,
                                     const std::function<bool(const std::string&)>& of_model) {
  for (const auto& [name, file] : record.files) {
    if (!of_model(name)) continue;
    std::error_code error;
    const auto size = fs::file_size(folder / name, error);
    if (error || size == 0 || (is_weights(name) && size < file.size)) return name;
  }
  return std::nullopt;
}

std::optional<std::string> missing_part(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string stem = gguf_stem(name);
  if (stem + ".gguf" == name) return filled(file) ? std::nullopt : std::optional(name);
  const int count = std::atoi(name.c_str() + name.size() - 10);
  for (int part = 1; part <= count; ++part) {
    const std::string wanted = fmt::format("{}-{:05}-of-{:05}.gguf", stem, part, count);
    if (!filled(file.parent_path() / wanted)) return wanted;
  }
  return std::nullopt;
}

}  // namespace

std::optional<SnapshotRecord> SnapshotRecord::load(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / kRecord, error)) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(read_file(folder / kRecord, kMostRecord));
    SnapshotRecord record;
    record.repo = json.at("repo").get<std::string>();
    record.revision = json.at("revision").get<std::string>();
    record.commit = json.at("commit").get<std::string>();
    for (const auto& [name, file] : json.at("files").items())
      record.files[name] = {file.at("size").get<std::uint64_t>(), file.at("etag").get<std::string>()};
    for (const auto& name : json.at("pending")) record.pending.insert(name.get<std::string>());
    return record;
  } catch (const std::exception&) {
    return std::nullopt;  // damaged: as if it were not there
  }
}

void SnapshotRecord::save(const fs::path& folder) const {
  nlohmann::ordered_json json = {{"repo", repo}, {"revision", revision}, {"commit", commit}};
  json["files"] = nlohmann::ordered_json::object();
  for (const auto& [name, file] : files) json["files"][name] = {{"size", file.size}, {"etag", file.etag}};
  json["pending"] = pending;
  AtomicFile out(folder / kRecord);
  out.write(json.dump(1) + "\n");
  out.commit();
}

std::optional<std::string> missing_file(const fs::path& model) {
  std::error_code error;
  const bool folder = fs::is_directory(model, error);
  if (!folder) {
    if (const auto part = missing_part(model)) return part;
    const auto record = SnapshotRecord::load(model.parent_path());
    if (!record) return std::nullopt;
    const auto of_model = [stem = gguf_stem(model.filename().string())](const std::string& name) {
      return gguf_stem(name) == stem;
    };
    for (const std::string& name : record->pending)
      if (of_model(name)) return name;
    return lost_file(model.parent_path(), *record, of_model);
  }
  if (const auto shard = missing_shard(model)) return shard;
  const auto record = SnapshotRecord::load(model);
  if (!record) return std::nullopt;
  for (const std::string& name : record->pending)
    if (!name.ends_with(".gguf")) return name;
  return lost_file(model, *record, [](const std::string& name) {
    return name.ends_with(".safetensors") || name.starts_with("tokenizer.") || name.ends_with(".tiktoken");
  });
}

FolderLock::FolderLock(const fs::path& folder, const std::function<void()>& waiting) : path_(folder / kLock) {
  for (bool told = false;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0)
      fail(ErrorKind::internal, "{}: cannot be written: {}", folder.string(), std::strerror(errno));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (!told && waiting) waiting();
      told = true;
      while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
      }
    }
    // Whoever held it may have removed the file meanwhile: then this is a lock on nothing.
    struct stat held{}, named{};
    if (::fstat(descriptor_, &held) == 0 && ::stat(path_.c_str(), &named) == 0 && held.st_ino == named.st_ino)
      return;
    ::close(descriptor_);
  }
}

FolderLock::~FolderLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace mlxcel
