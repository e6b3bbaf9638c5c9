// The models of a router: those of the store, of --models-dir and of --models-preset, later ones over earlier
// ones. Thread: any. Failure: UsageError for a preset that cannot be read; a model that cannot be loaded says
// so when somebody asks for it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/serve_options.h"
#include "server/model_pool.h"

namespace mlxcel::app {

/// What an INI file says of one model: flags as words (--temp=0), and what only a router knows.
struct Preset {
  std::string name;
  std::string model;  // empty: the model of that name, or a reference
  std::vector<std::string> words;
  bool load_on_startup = false;
  bool dedup = false;  // its model's own entry of the store is not listed
};
struct PresetFile {
  std::vector<std::string> common;  // of [*]
  std::vector<Preset> models;
  double stop_seconds = 10;
  bool dedup = false;
};
/// UsageError naming the line.
PresetFile read_presets(const std::string& text, const std::string& path);

/// The drafter's folder or file, fetched where it is not here; empty: none was asked for.
std::filesystem::path drafter_of(const ServeFlags& flags);

/// The engine's options: `fresh` also sets what is the process's (threads, precision).
EngineOptions server_engine_options(const ServeFlags& flags, bool fresh = true);

/// The models beside the first, loaded; neither where none was asked for. bad_checkpoint for one that gives
/// no vectors, or no scores.
struct SideModels {
  Service::Side embedder, reranker;
};
SideModels load_sides(const ServeFlags& flags, const Engine& first);

std::vector<PoolModel> find_models(const ServeFlags& flags, const PresetFile& presets);

}  // namespace mlxcel::app
