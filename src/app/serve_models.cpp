#include "app/serve_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "app/flags/flag.h"
#include "base/log.h"
#include "hub/store.h"

namespace mlxcel::app {
namespace {

namespace fs = std::filesystem;

constexpr std::array kAllowed = {"--model",
                                 "--hf-repo",
                                 "--hf-file",
                                 "--alias",
                                 "--tags",
                                 "--ctx-size",
                                 "--parallel",
                                 "--temp",
                                 "--top-k",
                                 "--top-p",
                                 "--min-p",
                                 "--seed",
                                 "--predict",
                                 "--kv-cache-mode",
                                 "--lora",
                                 "--model-draft",
                                 "--chat-template-file"};

std::string trim(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// The flag that a key means: a long name without dashes, a short form, or an environment variable.
const Flag* flag_of(const std::string& key) {
  std::string bare = key;
  while (bare.starts_with('-')) bare.erase(0, 1);
  std::replace(bare.begin(), bare.end(), '_', '-');
  for (const auto& flag : server_flags()) {
    if (!key.empty() && ("," + flag.env + ",").find("," + key + ",") != std::string::npos) return &flag;
    for (const auto& [name, on] : flag.spellings()) {
      if (on && (name == "--" + bare || name == "-" + bare)) return &flag;
    }
  }
  return nullptr;
}

bool yes(const std::string& value, const std::string& where) {
  for (const char* word : {"true", "on", "1", "enabled", "yes"})
    if (value == word) return true;
  for (const char* word : {"false", "off", "0", "disabled", "no"})
    if (value == word) return false;
  throw UsageError(fmt::format("{}: expected true or false, found \"{}\"", where, value.substr(0, 80)));
}

bool is_model_folder(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path / "config.json", error)) return true;
  for (const auto& file : fs::directory_iterator(path, error)) {
    if (file.path().extension() == ".gguf") return true;
  }
  return false;
}

/// Whether `path`, followed through links, stays under `root`.
bool stays_inside(const fs::path& root, const fs::path& path) {
  std::error_code error;
  const auto real = fs::canonical(path, error);
  if (error) return false;
  const auto base = fs::canonical(root, error);
  const auto relative = real.lexically_relative(base);
  return !error && !relative.empty() && *relative.begin() != "..";
}

PoolModel pool_model(const ServeFlags& flags, const std::string& id, const std::string& model,
                     const std::vector<std::string>& words, const std::string& source) {
  ServeFlags own = model_serve_flags(flags.words, words, model, id);
  own.service.model_path = model;
  own.service.mlx_version = flags.service.mlx_version;
  own.service.device = flags.service.device;
  PoolModel out;
  out.source = source;
  out.idle_seconds = own.sleep_idle_seconds;
  out.options = own.service;
  out.load = [own = std::move(own)] {
    return std::shared_ptr<Engine>(load_engine(own.model, server_engine_options(own, false)));
  };
  return out;
}

}  // namespace

std::filesystem::path drafter_of(const ServeFlags& flags) {
  if (flags.draft.model.empty()) return {};
  ModelFlags drafter = flags.model;
  drafter.model = flags.draft.model;
  drafter.revision.clear();
  drafter.hf_file.clear();
  return resolve(drafter);
}

SideModels load_sides(const ServeFlags& flags, const Engine& first) {
  const auto load = [&](const std::string& reference, bool scores) -> Service::Side {
    if (reference.empty()) return {};
    ModelFlags model = flags.model;
    model.model = reference;
    model.revision.clear();
    model.hf_file.clear();
    // What is done to the first model's configuration and weights is not done to this one.
    model.rope = {};
    model.diffusion = {};
    model.surgery.clear();
    const std::filesystem::path path = resolve(model);
    model.model = path.string();
    EngineOptions options;
    options.parallel = flags.parallel;
    options.context = scores ? 0 : flags.side.max_length;
    options.warmup = !flags.model.no_warmup;
    options.reranker = scores;
    Service::Side side;
    side.id = (path.has_filename() ? path : path.parent_path()).filename().string();
    side.engine = load_engine(model, options);
    const ModelInfo& info = side.engine->info();
    if (scores ? info.labels == 0 && info.encoder : !info.encoder || info.labels > 0)
      fail(ErrorKind::bad_checkpoint, "{}: {} gives no {}", scores ? "--reranker-model" : "--embedding-model",
           reference, scores ? "scores" : "vectors");
    return side;
  };
  const ModelInfo& info = first.info();
  if (flags.side.first_embeds && !info.encoder)
    fail(ErrorKind::bad_checkpoint, "--embedding-model: {} gives no vectors", flags.service.model_id);
  if (!flags.side.embedder.empty() && info.encoder && info.labels == 0 && !flags.service.reranking_only)
    fail(ErrorKind::bad_checkpoint, "--embedding-model: {} embeds already", flags.service.model_id);
  if (!flags.side.reranker.empty() && (info.labels > 0 || flags.service.reranking_only))
    fail(ErrorKind::bad_checkpoint, "--reranker-model: {} scores already", flags.service.model_id);
  return {load(flags.side.embedder, false), load(flags.side.reranker, true)};
}

EngineOptions server_engine_options(const ServeFlags& flags, bool fresh) {
  EngineOptions options;
  if (fresh) {
    options = engine_options(flags);
  } else {
    options = flags.engine;
    options.draft_model = drafter_of(flags);
    options.context = flags.model.context;
    options.prefill_chunk = flags.model.prefill_chunk;
    options.kv_cache_mode = flags.model.kv_cache_mode;
    options.warmup = !flags.model.no_warmup;
  }
  options.parallel = flags.parallel;
  options.max_queue = static_cast<size_t>(flags.max_queue);
  options.max_token_gap_ms = flags.max_token_gap;
  options.step_token_budget = flags.service.step_token_budget;
  options.pooling = flags.pooling;
  options.reranker = flags.service.reranking_only;
  options.max_per_key = static_cast<size_t>(flags.max_per_key);
  options.keys = std::max<size_t>(1, flags.service.access.keys.size());
  options.prompt_cache = flags.prompt_cache;
  options.prompt_cache_bytes = flags.prompt_cache_bytes;
  if (options.prompt_cache_bytes == 0 && flags.prompt_cache_mib > 0)
    options.prompt_cache_bytes = static_cast<size_t>(flags.prompt_cache_mib) << 20;
  return options;
}

PresetFile read_presets(const std::string& text, const std::string& path) {
  PresetFile out;
  std::istringstream lines(text);
  std::string section;
  int number = 0;
  for (std::string raw; std::getline(lines, raw);) {
    ++number;
    const std::string where = fmt::format("{}:{}", path, number);
    const std::string line = trim(raw);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      if (line.back() != ']' || line.size() < 3) throw UsageError(fmt::format("{}: expected [name]", where));
      section = trim(line.substr(1, line.size() - 2));
      const bool known = std::any_of(out.models.begin(), out.models.end(),
                                     [&](const Preset& preset) { return preset.name == section; });
      if (known) throw UsageError(fmt::format("{}: a second section [{}]", where, section));
      if (section != "*") out.models.push_back({.name = section, .model = "", .words = {}});
      continue;
    }
    const auto equals = line.find('=');
    if (equals == std::string::npos) throw UsageError(fmt::format("{}: expected key = value", where));
    const std::string key = trim(line.substr(0, equals));
    std::string value = trim(line.substr(equals + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
      value = value.substr(1, value.size() - 2);
    if (key == "version") {
      if (value != "1") throw UsageError(fmt::format("{}: version {}: expected 1", where, value));
      continue;
    }
    if (key == "stop-timeout") {
      try {
        out.stop_seconds = std::stod(value);
      } catch (const std::exception&) {
        out.stop_seconds = -1;
      }
      if (!(out.stop_seconds >= 0 && out.stop_seconds <= 3600))
        throw UsageError(fmt::format("{}: stop-timeout {}: expected seconds from 0 to 3600", where, value));
      continue;
    }
    if (key == "dedup-cache-models") {
      const bool on = yes(value, where);
      (section.empty() || section == "*" ? out.dedup : out.models.back().dedup) = on;
      continue;
    }
    if (section.empty()) throw UsageError(fmt::format("{}: {} stands before the first section", where, key));
    Preset* preset = section == "*" ? nullptr : &out.models.back();
    if (key == "load-on-startup") {
      if (!preset) throw UsageError(fmt::format("{}: load-on-startup belongs to one model", where));
      preset->load_on_startup = yes(value, where);
      continue;
    }
    const Flag* flag = flag_of(key);
    const bool allowed =
        flag && std::any_of(kAllowed.begin(), kAllowed.end(), [&](const char* name) {
          const auto all = flag->spellings();
          return std::any_of(all.begin(), all.end(), [&](const auto& s) { return s.first == name; });
        });
    if (!allowed)
      throw UsageError(fmt::format("{}: {}: not a key that a preset may have", where, key.substr(0, 80)));
    if (flag->name() == "--model" || flag->name() == "--hf-repo") {
      if (!preset) throw UsageError(fmt::format("{}: {} belongs to one model", where, key));
      preset->model = value;
      continue;
    }
    (preset ? preset->words : out.common).push_back(flag->name() + "=" + value);
  }
  return out;
}

std::vector<PoolModel> find_models(const ServeFlags& flags, const PresetFile& presets) {
  struct Found {
    std::string model, source;
    bool removable = false, hidden = false;
  };
  std::map<std::string, Found> found;
  std::error_code error;
  const fs::path store = flags.model.models_dir.empty() ? store_root() : fs::path(flags.model.models_dir);
  if (fs::is_directory(store, error)) {
    for (const auto& model : list_models(store))
      found[model.reference] = {model.path.string(), "cache", true};
  }
  if (!flags.router.folder.empty()) {
    const fs::path folder = flags.router.folder;
    if (!fs::is_directory(folder, error))
      throw UsageError(fmt::format("--models-dir {}: not a folder", flags.router.folder));
    for (const auto& child : fs::directory_iterator(folder, error)) {
      const fs::path& path = child.path();
      if (!stays_inside(folder, path)) continue;
      const bool file = child.is_regular_file(error) && path.extension() == ".gguf";
      if (!file && !(child.is_directory(error) && is_model_folder(path))) continue;
      found[file ? path.stem().string() : path.filename().string()] = {path.string(), "models_dir"};
    }
  }
  std::vector<PoolModel> out;
  std::map<std::string, const Preset*> own;
  for (const auto& preset : presets.models) {
    own[preset.name] = &preset;
    auto& entry = found[preset.name];
    if (!preset.model.empty()) entry = {preset.model, "preset"};
    if (entry.model.empty()) entry = {preset.name, "preset"};
    if (!presets.dedup && !preset.dedup) continue;
    for (auto& [id, other] : found) {
      const bool same = id == preset.model || id.starts_with(preset.model + ":");
      if (same && !preset.model.empty() && other.source == "cache") other.hidden = true;
    }
  }
  for (const auto& [id, entry] : found) {
    auto words = presets.common;
    const auto preset = own.find(id);
    if (preset != own.end())
      words.insert(words.end(), preset->second->words.begin(), preset->second->words.end());
    try {
      PoolModel model = pool_model(flags, id, entry.model, words, entry.source);
      model.removable = entry.removable;
      model.hidden = entry.hidden;
      model.load_on_startup = preset != own.end() && preset->second->load_on_startup;
      out.push_back(std::move(model));
    } catch (const UsageError&) {
      if (preset != own.end()) throw;  // what the user wrote; a folder that merely lies there is passed over
      log::warn("server", "{}: passed over", id);
    }
  }
  return out;
}

}  // namespace mlxcel::app
