// `download` and `rm`: what comes into the store and what leaves it.
#include "hub/download.h"
#include "app/say.h"

#include <fmt/format.h>

#include <iostream>

#include "app/commands.h"
#include "app/download_bars.h"
#include "app/options.h"
#include "app/terminal.h"
#include "hub/snapshot.h"

namespace mlxcel::app {
namespace {

Reference repository(const std::string& text, const char* command) {
  if (text.empty())
    throw UsageError(fmt::format("{}: which model? give owner/name, owner/name:QUANT or a name", command));
  try {
    return parse_repository(text);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

std::optional<std::filesystem::path> folder_flag(const std::string& flag) {
  return flag.empty() ? std::nullopt : std::optional<std::filesystem::path>(flag);
}

}  // namespace

int download_command(int argc, char** argv) {
  ModelFlags flags;
  std::string local_dir;
  bool force = false;
  CLI::App app("Fetch a model's files into the store.", "mlxcel download");
  configure(app,
            "  mlxcel download mlx-community/SmolLM2-135M-Instruct\n"
            "  mlxcel download owner/name-GGUF:Q4_K_M\n"
            "  mlxcel download owner/name --revision v1.0 --local-dir ./name-v1.0\n"
            "  HF_ENDPOINT=https://mirror.example mlxcel download owner/name\n");
  app.add_option("REPO", flags.model, "owner/name, owner/name:QUANT, or a bare name")->group("");
  app.add_option("--hf-file", flags.hf_file, "one file of the repository exactly")->type_name("FILE");
  app.add_option("--local-dir", local_dir, "write the files at this path instead of into the store")
      ->type_name("PATH");
  app.add_option("--models-dir", flags.models_dir, "another store")->type_name("PATH");
  app.add_option("--revision", flags.revision, "branch, tag or revision id (default: main)")
      ->type_name("REV");
  app.add_option("--token,--hf-token", flags.hf_token,
                 "access token (default: HF_TOKEN, HUGGING_FACE_HUB_TOKEN)")
      ->type_name("TOKEN");
  app.add_flag("--force", force, "fetch again even what is here");
  app.add_flag("--offline", flags.offline, "never use the network: only looks at what is here");
  parse(app, argc, argv);
  const Reference reference = repository(flags.model, "download");
  if (flags.offline) go_offline();

  if (local_dir.empty() && !force) {
    // A copy in the Hugging Face cache serves as it is.
    ResolveOptions here;
    here.store = folder_flag(flags.models_dir);
    here.revision = flags.revision;
    here.file = flags.hf_file;
    if (const auto cached = cached_model(reference, here)) {
      say("already in the Hugging Face cache\n");
      fmt::print("{}\n", cached->string());
      return 0;
    }
  }
  const Reference source = download_source(reference);
  const std::filesystem::path folder =
      local_dir.empty() ? store_root(folder_flag(flags.models_dir)) / source.owner / source.name
                        : std::filesystem::path(local_dir);
  DownloadReport report;
  {
    DownloadBars bars;
    report = download_model(source,
                            {.folder = folder,
                             .revision = flags.revision,
                             .file = flags.hf_file,
                             .token = flags.hf_token,
                             .force = force},
                            bars);
  }
  if (report.fetched_files == 0) {
    say("{} files, all here already\n", report.present_files);
  } else {
    say("fetched {} file{}, {}{}\n", report.fetched_files, report.fetched_files == 1 ? "" : "s",
        human_bytes(report.fetched_bytes),
        report.present_files > 0 ? fmt::format("; {} were here", report.present_files) : "");
  }
  const bool one_file = report.files.size() == 1 && (!flags.hf_file.empty() || !reference.quant.empty());
  fmt::print("{}\n", (one_file ? folder / report.files.front() : folder).string());
  return 0;
}

int rm_command(int argc, char** argv) {
  std::string model, models_dir;
  bool yes = false;
  CLI::App app("Delete a model from the store.", "mlxcel rm");
  configure(app, "  mlxcel rm owner/name\n  mlxcel rm owner/name-GGUF:Q4_K_M --yes\n");
  app.add_option("REPO", model, "owner/name, owner/name:QUANT, or a bare name, as `mlxcel list` shows it")
      ->group("");
  app.add_flag("-y,--yes", yes, "do not ask");
  app.add_option("--models-dir", models_dir, "another store")->type_name("PATH");
  parse(app, argc, argv);
  const Reference reference = repository(model, "rm");
  const auto root = store_root(folder_flag(models_dir));
  const auto bytes = stored_bytes(reference, root);  // a model that is not there ends here
  if (!yes) {
    if (!stdin_is_terminal())
      throw UsageError(fmt::format("rm {}: not asked on a terminal; add --yes to delete", model));
    say("delete {} ({}) from {}? [y/N] ", model, human_bytes(bytes), root.string());
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != "y" && answer != "Y" && answer != "yes") {
      say("nothing deleted\n");
      return 1;
    }
  }
  const auto freed = remove_model(reference, root);
  fmt::print("deleted {}, {} freed\n", model, human_bytes(freed));
  return 0;
}

}  // namespace mlxcel::app
