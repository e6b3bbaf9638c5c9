#include "models/catalogue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/rules/gguf_arch.h"
#include "models/arch.h"

namespace mlxcel {

namespace {

constexpr const char* kHead = R"(# Supported models

Written by `mlxcel arch --markdown`; a test compares this file with that command's output.

Every family passes the generated architecture suite, with the kernels of this machine and with the plain MLX graph:
prefill, token by token, chunks and mixed batches give the same answer, forks and roll-backs leave no trace, every KV
type, 4-bit builds, saving and loading, every tensor used and every missing one named.

The last column counts golden files (`tests/golden/data`): log-probabilities of tiny models equal to the reference's
within 2e-3 in precision `exact` and 5e-3 in `high`. GGUF names in parentheses are llama.cpp's for a family whose GGUF
files are not mapped yet.

)";

std::string quoted(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const auto& name : names) out.push_back(fmt::format("`{}`", name));
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string gguf_names(const Arch& arch) {
  std::vector<std::string> out;
  for (const auto& name : arch.gguf)
    out.push_back(find_gguf_arch(name) ? fmt::format("`{}`", name) : fmt::format("({})", name));
  return fmt::format("{}", fmt::join(out, ", "));
}

/// A golden is called after its model_type: "nemotron-nas-pruned" is none of nemotron's.
const Arch* owner_of(const std::string& golden) {
  const Arch* owner = nullptr;
  size_t longest = 0;
  for (const NamedArch& entry : arch_table())
    for (const auto& type : entry.arch.model_types)
      if (golden.starts_with(type + "-") && type.size() > longest) {
        owner = &entry.arch;
        longest = type.size();
      }
  return owner;
}

int goldens_of(const Arch& arch) {
  return static_cast<int>(
      std::count_if(golden_names().begin(), golden_names().end(),
                    [&](const std::string& golden) { return owner_of(golden) == &arch; }));
}

}  // namespace

std::string supported_models() {
  std::string text = kHead;
  for (const char* kind : {"decoder", "encoder"}) {
    const bool decoder = std::string_view(kind) == "decoder";
    text +=
        fmt::format("## {}\n\n| family | model_type | GGUF | reference | goldens |\n|---|---|---|---|---:|\n",
                    decoder ? "Text" : "Embedding");
    for (const NamedArch& entry : arch_table())
      if (entry.arch.kind == kind)
        text += fmt::format("| {} | {} | {} | {} | {} |\n", entry.family, quoted(entry.arch.model_types),
                            gguf_names(entry.arch), entry.arch.reference, goldens_of(entry.arch));
    text += decoder ? "\n" : "";
  }
  return text;
}

}  // namespace mlxcel
