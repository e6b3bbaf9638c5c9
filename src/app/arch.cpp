// `arch`: what can be run, from the table of architectures itself.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/options.h"
#include "models/arch.h"
#include "models/catalogue.h"
#include "models/model.h"
#include "models/tiny_layout.h"
#include "state/kv_mode.h"

namespace mlxcel::app {
namespace {

/// Kinds of drafts a family's answers may be checked against.
std::vector<std::string> drafters_of(const ArchEntry& entry) {
  if (entry.kind != "decoder") return {};
  std::vector<std::string> kinds = {"draft", "prompt-lookup", "dflash"};
  for (const NamedArch& known : arch_table()) {
    if (known.family != entry.family || !known.arch.mtp.build) continue;
    kinds.emplace_back("internal-mtp");
    if (!known.arch.mtp.drafters.empty()) kinds.emplace_back("mtp");
  }
  return kinds;
}

/// The KV modes that a family's layers can take, whatever the sizes of its heads.
std::vector<std::string> kv_modes(const ArchEntry& entry) {
  std::vector<std::string> modes;
  if (entry.kind == "encoder") return modes;
  const StateLayout layout = tiny_layout(entry);
  for (const KvMode mode : {KvMode::fp16, KvMode::int8, KvMode::turbo4_asym, KvMode::turbo4_delegated,
                            KvMode::turbo4, KvMode::turbo3_asym}) {
    try {
      plan_kv(layout, {.mode = mode, .boundary_values = 0, .skip_last_layer = false}, mx::float16, 0,
              entry.family);
      modes.emplace_back(to_string(mode));
    } catch (const Error&) {
      continue;
    }
  }
  return modes;
}

}  // namespace

int arch_command(int argc, char** argv) {
  bool json = false, markdown = false;
  CLI::App app("List the supported architectures.", "mlxcel arch");
  configure(app, "  mlxcel arch --json\n");
  app.add_flag("--json", json, "the catalogue as JSON");
  app.add_flag("--markdown", markdown, "docs/supported-models.md");
  parse(app, argc, argv);
  if (markdown) {
    fmt::print("{}", supported_models());
    return 0;
  }

  auto entries = architectures();
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.family < b.family; });
  if (json) {
    nlohmann::ordered_json families = nlohmann::ordered_json::array();
    for (const ArchEntry& entry : entries) {
      const bool encoder = entry.kind == "encoder";
      families.push_back(
          {{"id", entry.family},
           {"keys", entry.model_types},
           {"kind", entry.kind},
           {"runtimes", encoder ? std::vector<std::string>{"embedding"} : std::vector<std::string>{"text"}},
           {"input_modalities", {"text"}},
           {"output_modalities", {encoder ? "vector" : "text"}},
           {"backends",
            {{"metal", std::string_view(MLXCEL_BACKEND_NAME) == "metal"},
             {"cuda", std::string_view(MLXCEL_BACKEND_NAME) == "cuda"},
             {"cpu", true}}},
           {"tensor_parallel", false},
           {"pipeline_parallel", false},
           {"drafters", drafters_of(entry)},
           {"kv_modes", kv_modes(entry)},
           {"gguf", entry.gguf},
           {"reference", entry.reference}});
    }
    fmt::print("{}\n",
               nlohmann::ordered_json{{"mlxcel_version", MLXCEL_VERSION}, {"families", families}}.dump(2));
    return 0;
  }
  size_t widest = 0;
  for (const ArchEntry& entry : entries) widest = std::max(widest, entry.family.size());
  for (const char* kind : {"decoder", "encoder"}) {
    fmt::print("{}\n", std::string_view(kind) == "decoder" ? "Text" : "Embedding");
    for (const ArchEntry& entry : entries) {
      if (entry.kind != kind) continue;
      const std::string types = fmt::format("{}", fmt::join(entry.model_types, ", "));
      fmt::print(
          "  {:<{}}  model_type {}\n", entry.family, widest,
          entry.gguf.empty() ? types : fmt::format("{:<36} GGUF {}", types, fmt::join(entry.gguf, ", ")));
    }
  }
  return 0;
}

}  // namespace mlxcel::app
