#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/foreign/foreign.h"
#include "checkpoint/formats/gguf_file.h"
#include "checkpoint/formats/planes.h"
#include "checkpoint/formats/quant_map.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/formats/split_name.h"
#include "checkpoint/rules/gguf_arch.h"

namespace mlxcel {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfig = size_t{16} << 20;

Config read_config(const fs::path& path) { return Config::parse(read_file(path, kMaxConfig), path.string()); }

/// eos_token_id: one id, a list, or nothing. -1 stands for "none" in some files.
void collect_eos(const Config& config, std::set<int>& ids) {
  if (!config.has("eos_token_id")) return;
  if (config.is_array("eos_token_id")) {
    const auto list = config.get<std::vector<int>>("eos_token_id");
    ids.insert(list.begin(), list.end());
  } else if (const int id = config.integer("eos_token_id", -1, std::numeric_limits<int>::max()); id >= 0) {
    ids.insert(id);
  }
}

Checkpoint open_gguf(const fs::path& path) {
  const GgufContents contents = read_gguf(path);
  Checkpoint out;
  out.path = contents.first;
  out.format = Checkpoint::Format::gguf;
  const ConfigDraft config = gguf_config(contents);
  out.config = Config::parse(config.json(), contents.first.string());
  out.source = gguf_source(contents, config);
  out.file_bytes = contents.file_bytes;
  std::set<int> eos;
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = gguf_integer(contents.metadata, key, 0, std::numeric_limits<int>::max()))
      eos.insert(static_cast<int>(*id));
  out.eos_ids.assign(eos.begin(), eos.end());
  out.gguf = std::make_shared<const GgufMetadata>(contents.metadata);
  return out;
}

Checkpoint open_safetensors(const fs::path& folder) {
  Checkpoint out;
  out.path = folder;
  out.config = read_config(folder / "config.json");
  std::set<int> eos;
  if (fs::exists(folder / "generation_config.json")) {
    out.generation_config = read_config(folder / "generation_config.json");
    collect_eos(out.generation_config, eos);
  }
  collect_eos(out.config, eos);
  if (out.config.is_object("text_config")) collect_eos(out.config.child("text_config"), eos);
  out.eos_ids.assign(eos.begin(), eos.end());
  const QuantMap map = QuantMap::from(out.config);
  StoredTensors tensors = read_safetensors_folder(folder, out.warnings, out.file_bytes);
  auto foreign = take_foreign(tensors, ForeignConfig::from(out.config), out.warnings);
  out.source = with_conversions(join_planes(std::move(tensors), map, out.warnings), std::move(foreign));
  return out;
}

/// The GGUF models of a folder, one name for each split set, projectors left out.
std::vector<fs::path> gguf_models(const fs::path& folder) {
  std::set<std::string> sets;
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".gguf") || name.starts_with(".") || name.find("mmproj") != std::string::npos)
      continue;
    const auto split = parse_split_name(name, ".gguf");
    if (!split || sets.insert(split->name(1)).second) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool holds(const fs::path& folder, std::initializer_list<const char*> endings) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    for (const char* ending : endings)
      if (name.ends_with(ending)) return true;
  }
  return false;
}

Checkpoint open_folder(const fs::path& folder) {
  const std::string where = folder.string();
  const bool config = fs::exists(folder / "config.json"), safetensors = has_safetensors(folder);
  if (config && safetensors) return open_safetensors(folder);
  const auto models = gguf_models(folder);
  if (models.size() == 1) return open_gguf(models[0]);
  if (models.size() > 1)
    fail(ErrorKind::invalid_request, "{}: {} GGUF models ({}, {}, ...); name the file", where, models.size(),
         models[0].filename().string(), models[1].filename().string());
  if (safetensors) fail(ErrorKind::bad_checkpoint, "{}: config.json: missing; download incomplete?", where);
  if (holds(folder, {".bin", ".pt", ".pth", ".npz"}))
    fail(ErrorKind::unsupported, "{}: PyTorch and NumPy weights are not loaded; use a safetensors export",
         where);
  if (config) fail(ErrorKind::bad_checkpoint, "{}: holds no *.safetensors; download incomplete?", where);
  fail(ErrorKind::not_found, "{}: neither config.json with *.safetensors nor a .gguf file", where);
}

}  // namespace

Checkpoint open_checkpoint(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (fs::is_directory(status)) return open_folder(path);
  const std::string name = path.filename().string();
  if (name.ends_with(".gguf")) return open_gguf(path);  // a missing part of a set is named there
  if (!fs::exists(status)) fail(ErrorKind::not_found, "{}: no such file or folder", path.string());
  if (name.ends_with(".safetensors"))
    fail(ErrorKind::invalid_request, "{}: give the folder that holds it and config.json", path.string());
  fail(ErrorKind::unsupported, "{}: expected a folder or a .gguf file", path.string());
}

}  // namespace mlxcel
