// `list`: the models in the store.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "app/commands.h"
#include "app/options.h"
#include "app/terminal.h"
#include "base/error.h"

namespace mlxcel::app {
namespace {

std::string ago(const std::optional<std::int64_t>& modified) {
  if (!modified) return "-";
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  const std::int64_t seconds = std::max<std::int64_t>(0, now.count() - *modified);
  const auto say = [](std::int64_t n, const char* unit) {
    return fmt::format("{} {}{} ago", n, unit, n == 1 ? "" : "s");
  };
  if (seconds < 60) return "just now";
  if (seconds < 3600) return say(seconds / 60, "minute");
  if (seconds < 86400) return say(seconds / 3600, "hour");
  if (seconds < 86400 * 60) return say(seconds / 86400, "day");
  return say(seconds / (86400 * 30), "month");
}

std::string with_tilde(const std::string& path) {
  const char* home = std::getenv("HOME");
  const std::string prefix = home ? home : "";
  const bool below = !prefix.empty() && path.starts_with(prefix) &&
                     (path.size() == prefix.size() || path[prefix.size()] == '/');
  return below ? "~" + path.substr(prefix.size()) : path;
}

}  // namespace

int list_command(int argc, char** argv) {
  std::string models_dir, sort = "name";
  bool verbose = false, json = false, quiet = false;
  CLI::App app("List the models in the store.", "mlxcel list");
  configure(app, "  mlxcel list --sort size\n  mlxcel list --json\n");
  app.add_option("--models-dir", models_dir, "another store")->type_name("PATH");
  app.add_option("--sort", sort, "name, size (largest first) or modified (newest first)")
      ->check(CLI::IsMember({"name", "size", "modified"}))
      ->capture_default_str();
  auto* json_flag = app.add_flag("--json", json, "an array of {repo_id, size_bytes, path, modified}");
  auto* quiet_flag = app.add_flag("-q,--quiet", quiet, "one reference per line")->excludes(json_flag);
  app.add_flag("-v,--verbose", verbose, "show paths")->excludes(json_flag)->excludes(quiet_flag);
  parse(app, argc, argv);

  const auto root =
      store_root(models_dir.empty() ? std::nullopt : std::optional<std::filesystem::path>(models_dir));
  std::error_code error;
  std::filesystem::directory_iterator readable(root, error);
  if (error && error != std::errc::no_such_file_or_directory)
    fail(ErrorKind::not_found, "{}: the store cannot be read: {}", root.string(), error.message());
  auto models = list_models(root);
  if (sort == "size")
    std::stable_sort(models.begin(), models.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (sort == "modified")
    std::stable_sort(models.begin(), models.end(), [](const auto& a, const auto& b) {
      return a.modified.value_or(0) > b.modified.value_or(0);
    });

  if (json) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const StoredModel& model : models)
      out.push_back({{"repo_id", model.reference},
                     {"size_bytes", model.bytes},
                     {"path", model.path.string()},
                     {"modified", model.modified ? nlohmann::ordered_json(*model.modified)
                                                 : nlohmann::ordered_json(nullptr)}});
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  if (quiet) {
    for (const StoredModel& model : models) fmt::print("{}\n", model.reference);
    return 0;
  }
  if (models.empty()) {
    fmt::print("no models in {}; `mlxcel arch` lists what can be run\n", with_tilde(root.string()));
    return 0;
  }
  size_t width = 4;
  for (const StoredModel& model : models) width = std::max(width, model.reference.size());
  fmt::print("models in {}\n{:<{}}  {:>9}  {:<14}{}\n", with_tilde(root.string()), "NAME", width, "SIZE",
             "MODIFIED", verbose ? "  PATH" : "");
  for (const StoredModel& model : models) {
    fmt::print("{:<{}}  {:>9}  {:<14}{}\n", model.reference, width, human_bytes(model.bytes),
               ago(model.modified), verbose ? "  " + std::filesystem::absolute(model.path).string() : "");
  }
  return 0;
}

}  // namespace mlxcel::app
