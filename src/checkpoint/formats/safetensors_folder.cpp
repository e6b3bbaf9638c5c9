// Which files of a folder make up the model, and whether they are all there.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/config.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/formats/split_name.h"

namespace mlxcel {

namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMaxIndex = size_t{64} << 20;

/// File names of the shards: model*.safetensors, else whatever safetensors there are that hold a model
/// (Mistral's consolidated.* repeat the model in another spelling; adapters are none).
std::vector<std::string> glob(const fs::path& folder) {
  std::vector<std::string> model, other;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".safetensors") || name.starts_with(".")) continue;
    if (name.starts_with("model")) {
      model.push_back(name);
    } else if (!name.starts_with("consolidated") && !name.starts_with("adapter")) {
      other.push_back(name);
    }
  }
  std::vector<std::string>& found = model.empty() ? other : model;
  std::sort(found.begin(), found.end());
  return found;
}

/// Names of the form stem-00001-of-00003.safetensors announce their siblings.
void check_numbered(const fs::path& folder, const std::vector<std::string>& present) {
  const std::set<std::string> names(present.begin(), present.end());
  for (const std::string& name : present) {
    const auto split = parse_split_name(name, ".safetensors");
    if (!split) continue;
    for (int part = 1; part <= split->count; ++part) {
      const std::string sibling = split->name(part);
      if (!names.contains(sibling))
        fail(ErrorKind::bad_checkpoint, "{}: missing; download incomplete?", (folder / sibling).string());
    }
  }
}

struct Index {
  std::set<std::string> files;
  std::vector<std::pair<std::string, std::string>> tensors;  // name, file
};

Index read_index(const fs::path& path) {
  const Config config = Config::parse(read_file(path, kMaxIndex), path.string());
  const Config map = config.child("weight_map");
  Index index;
  for (const std::string& tensor : map.keys()) {
    const auto file = map.get<std::string>(tensor);
    if (file.empty() || file.find_first_of("/\\") != std::string::npos || file.starts_with(".") ||
        !file.ends_with(".safetensors"))
      fail(ErrorKind::bad_checkpoint,
           "{}: weight_map.{}: expected the name of a safetensors file, found \"{}\"", path.string(), tensor,
           file);
    index.files.insert(file);
    index.tensors.emplace_back(tensor, file);
  }
  return index;
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 4; ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > 4) out += fmt::format(" and {} more", names.size() - 4);
  return out;
}

}  // namespace

bool has_safetensors(const fs::path& folder) { return !glob(folder).empty() || fs::exists(folder / kIndex); }

StoredTensors read_safetensors_folder(const fs::path& folder, std::vector<std::string>& warnings,
                                      size_t& file_bytes) {
  std::vector<std::string> present = glob(folder);
  Index index;
  bool indexed = fs::exists(folder / kIndex);
  if (indexed) {
    index = read_index(folder / kIndex);
    const bool stale =
        !present.empty() && std::none_of(present.begin(), present.end(),
                                         [&](const std::string& name) { return index.files.contains(name); });
    if (stale || index.files.empty()) {
      warnings.push_back(
          fmt::format("{}: names none of the shards present; ignored", (folder / kIndex).string()));
      indexed = false;
    }
  }
  if (indexed) {
    for (const std::string& name : index.files)
      if (!fs::exists(folder / name))
        fail(ErrorKind::bad_checkpoint, "{}: missing; download incomplete?", (folder / name).string());
    std::vector<std::string> extra;
    for (const std::string& name : present)
      if (!index.files.contains(name)) extra.push_back(name);
    if (!extra.empty())
      warnings.push_back(
          fmt::format("{}: does not name {}; not read", (folder / kIndex).string(), listed(extra)));
    present.assign(index.files.begin(), index.files.end());
  }
  if (present.empty())
    fail(ErrorKind::bad_checkpoint, "{}: holds no *.safetensors; download incomplete?", folder.string());
  check_numbered(folder, present);

  StoredTensors tensors;
  file_bytes = 0;
  for (const std::string& name : present) {
    const auto file = File::open(folder / name);
    read_safetensors_header(file, tensors, warnings);
    file_bytes += file->size();
  }
  if (indexed) {
    std::vector<std::string> absent, unlisted;
    std::set<std::string> known;
    for (const auto& [tensor, file] : index.tensors) {
      known.insert(tensor);
      const auto found = tensors.find(tensor);
      if (found == tensors.end() || found->second.file->path().filename() != file) absent.push_back(tensor);
    }
    for (const auto& [tensor, stored] : tensors)
      if (!known.contains(tensor)) unlisted.push_back(tensor);
    if (!absent.empty())
      warnings.push_back(fmt::format("{}: the shards do not hold {} where it says",
                                     (folder / kIndex).string(), listed(absent)));
    if (!unlisted.empty())
      warnings.push_back(fmt::format("{}: does not list {}", (folder / kIndex).string(), listed(unlisted)));
  }
  return tensors;
}

}  // namespace mlxcel
