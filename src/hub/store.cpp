#include "hub/store.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <system_error>

#include "base/error.h"

namespace mlxcel {
namespace fs = std::filesystem;
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

fs::path home() {
  const std::string value = environment("HOME");
  return value.empty() ? fs::path(".") : fs::path(value);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

/// One GGUF model of a folder; a split set is one, named by its first part.
struct GgufSet {
  fs::path first;
  std::string stem;  // file name without part number and extension
  std::uintmax_t bytes = 0;
};

std::vector<GgufSet> gguf_sets(const fs::path& folder) {
  static const std::regex part("^(.*)-([0-9]{5})-of-([0-9]{5})$");
  std::map<std::string, GgufSet> sets;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    if (lower(path.extension().string()) != ".gguf") continue;
    std::string stem = path.stem().string();
    if (lower(stem).rfind("mmproj", 0) == 0) continue;  // a projector is not a model
    std::smatch match;
    if (std::regex_match(stem, match, part)) stem = match[1].str();
    GgufSet& set = sets[stem];
    set.stem = stem;
    if (set.first.empty() || path.filename() < set.first.filename()) set.first = path;
    std::error_code size_error;
    const auto size = fs::file_size(path, size_error);
    if (!size_error) set.bytes += size;
  }
  std::vector<GgufSet> result;
  result.reserve(sets.size());
  for (auto& [stem, set] : sets) result.push_back(std::move(set));
  return result;
}

/// "Q4_K_M" of "SmolLM2-135M-Instruct.Q4_K_M": the last word that names a quantisation.
std::string quant_of(const std::string& stem) {
  static const std::regex word("(?:^|[.\\-_])((?:IQ|TQ|Q)[0-9][A-Z0-9_]*|F16|F32|BF16|MXFP4)$",
                               std::regex::icase);
  std::smatch match;
  return std::regex_search(stem, match, word) ? match[1].str() : "";
}

bool has_config(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "config.json", error);
}

std::optional<std::int64_t> modified_seconds(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return std::nullopt;
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration_cast<std::chrono::seconds>(system.time_since_epoch()).count();
}

void list_folder(const fs::path& folder, const std::string& reference, std::vector<StoredModel>& models) {
  if (has_config(folder)) {
    StoredModel model{reference, folder, 0, modified_seconds(folder / "config.json")};
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
      std::error_code size_error;
      if (entry.is_regular_file(size_error)) {
        const auto size = entry.file_size(size_error);
        if (!size_error) model.bytes += size;
      }
    }
    models.push_back(std::move(model));
    return;
  }
  for (const GgufSet& set : gguf_sets(folder)) {
    const std::string quant = quant_of(set.stem);
    models.push_back({quant.empty() ? reference : reference + ":" + quant, set.first, set.bytes,
                      modified_seconds(set.first)});
  }
}

/// The snapshot folder of a repository in the Hugging Face cache, if it is there.
std::optional<fs::path> hugging_face_snapshot(const Reference& reference, const std::string& revision) {
  fs::path hub = environment("HF_HUB_CACHE");
  if (hub.empty()) {
    const std::string hf_home = environment("HF_HOME");
    hub = hf_home.empty() ? home() / ".cache/huggingface/hub" : fs::path(hf_home) / "hub";
  }
  const fs::path repo = hub / ("models--" + reference.owner + "--" + reference.name);
  if (!is_folder(repo)) return std::nullopt;
  std::string commit = revision.empty() ? "main" : revision;
  if (std::ifstream ref(repo / "refs" / commit); ref) {
    std::string line;
    std::getline(ref, line);
    if (!line.empty() && line.size() <= 64 && line.find('/') == std::string::npos) commit = line;
  }
  const fs::path snapshot = repo / "snapshots" / commit;
  if (is_folder(snapshot)) return snapshot;
  return std::nullopt;
}

std::optional<fs::path> pick(const fs::path& folder, const Reference& reference,
                             const ResolveOptions& options) {
  if (!is_folder(folder)) return std::nullopt;
  if (!options.file.empty()) {
    std::error_code error;
    const fs::path file = folder / options.file;
    if (fs::is_regular_file(file, error)) return file;
    return std::nullopt;
  }
  return model_in_folder(folder, reference.quant);
}

}  // namespace

fs::path cache_root() {
  const std::string value = environment("MLXCEL_CACHE_DIR");
  return value.empty() ? home() / ".cache/mlxcel" : fs::path(value);
}

fs::path store_root(const std::optional<fs::path>& flag) {
  if (flag) return *flag;
  const std::string value = environment("MLXCEL_MODELS_DIR");
  return value.empty() ? cache_root() / "models" : fs::path(value);
}

std::optional<fs::path> model_in_folder(const fs::path& folder, const std::string& quant) {
  if (quant.empty() && has_config(folder)) return folder;
  const auto sets = gguf_sets(folder);
  if (sets.empty()) return std::nullopt;
  if (!quant.empty()) {
    const std::string want = lower(quant);
    for (const GgufSet& set : sets)
      if (lower(quant_of(set.stem)) == want) return set.first;
    for (const GgufSet& set : sets)
      if (lower(set.stem).find(want) != std::string::npos) return set.first;
    return std::nullopt;
  }
  for (const GgufSet& set : sets)
    if (lower(quant_of(set.stem)) == "q4_k_m") return set.first;
  return sets.front().first;
}

std::vector<StoredModel> list_models(const fs::path& root) {
  std::vector<StoredModel> models;
  std::error_code error;
  for (const auto& owner : fs::directory_iterator(root, error)) {
    if (!is_folder(owner.path())) continue;
    const std::string owner_name = owner.path().filename().string();
    const size_t before = models.size();
    list_folder(owner.path(), owner_name, models);  // a bare <root>/<name>
    if (models.size() != before) continue;
    std::error_code inner;
    for (const auto& name : fs::directory_iterator(owner.path(), inner))
      if (is_folder(name.path()))
        list_folder(name.path(), owner_name + "/" + name.path().filename().string(), models);
  }
  std::sort(models.begin(), models.end(),
            [](const StoredModel& a, const StoredModel& b) { return a.reference < b.reference; });
  return models;
}

fs::path resolve_model(const Reference& reference, const ResolveOptions& options) {
  if (reference.path) {
    if (!options.revision.empty())
      fail(ErrorKind::invalid_request, "--revision {}: {} is a local path; a revision needs owner/name",
           options.revision, reference.text);
    if (!is_folder(*reference.path)) return *reference.path;
    if (!options.file.empty()) {
      if (auto found = pick(*reference.path, reference, options)) return *found;
      fail(ErrorKind::not_found, "--hf-file {}: not in {}", options.file, reference.text);
    }
    if (has_config(*reference.path)) return *reference.path;
    const auto sets = gguf_sets(*reference.path);
    if (sets.size() == 1) return sets.front().first;
    if (sets.empty())
      fail(ErrorKind::not_found, "{}: expected config.json or a .gguf file in this folder, found neither",
           reference.text);
    fail(ErrorKind::invalid_request, "{}: this folder holds {} GGUF models; name one of them, for example {}",
         reference.text, sets.size(), sets.front().first.string());
  }

  std::vector<std::string> looked;
  const auto search = [&](const fs::path& folder) -> std::optional<fs::path> {
    looked.push_back(folder.string());
    return pick(folder, reference, options);
  };
  if (options.revision.empty())
    if (auto found = search(fs::path("models") / reference.name)) return *found;
  if (const auto snapshot = hugging_face_snapshot(reference, options.revision)) {
    if (auto found = search(*snapshot)) return *found;
  } else {
    looked.push_back("the Hugging Face cache");
  }
  const fs::path root = store_root(options.store);
  if (options.revision.empty())
    if (auto found = search(root / reference.owner / reference.name)) return *found;

  std::string where;
  for (const std::string& place : looked) where += (where.empty() ? "" : ", ") + place;
  const std::string hint = reference.is_default_model()
                               ? "run scripts/fetch_model.sh to get it"
                               : "put the model's folder there, or give the path of a folder or .gguf file "
                                 "(`mlxcel list` shows what is here)";
  fail(ErrorKind::not_found, "{}: model not found; looked in {}; {}", reference.text, where, hint);
}

}  // namespace mlxcel
