#include "app/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "app/environment.h"
#include "app/say.h"
#include "models/arch.h"

namespace mlxcel::app {
namespace {

void trace_arch(const Checkpoint& checkpoint) {
  const Config& config = checkpoint.config;
  const NamedArch& found = detect_arch(config);
  const auto rules = found.arch.weights(config, *checkpoint.source);
  say("trace: {}: model_type {}, architectures [{}]: family {}, a {} after {}; {} rules\n", config.where(),
      config.get<std::string>("model_type"),
      fmt::join(config.get<std::vector<std::string>>("architectures", {}), ", "), found.family,
      found.arch.kind, found.arch.reference, rules.size());
  for (const Rule& rule : rules) say("trace:   {}\n", rule.describe());
}

/// "model.layers.12.mlp.up_proj.weight": "layer 12"; what has no number is outside the layers.
std::string place_of(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.size() < 8 && part.find_first_not_of("0123456789") == std::string::npos)
      return fmt::format("layer {:>3}", std::stoi(part));
    begin = end + 1;
  }
  return "outside  ";
}

void trace_dtypes(const Checkpoint& checkpoint) {
  std::map<std::string, std::map<std::string, int>> places;
  for (const std::string& name : checkpoint.source->names())
    if (const auto info = checkpoint.source->find(name)) ++places[place_of(name)][info->stored_as];
  for (const auto& [place, forms] : places) {
    std::string line = "trace: " + place;
    for (const auto& [form, count] : forms) line += fmt::format("  {} x {}", count, form);
    say("{}\n", line);
  }
}

}  // namespace

void trace_checkpoint(const Checkpoint& checkpoint) {
  if (variable_is_on("MLXCEL_TRACE_ARCH")) trace_arch(checkpoint);
  if (variable_is_on("MLXCEL_TRACE_DTYPE")) trace_dtypes(checkpoint);
}

}  // namespace mlxcel::app
