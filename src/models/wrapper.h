// Models with towers beside the text (vision, audio), of which the text side is served: its family builds it
// from text_config, its tensors lose the prefixes that exporters put before them, the towers' tensors are
// left out. Thread: any.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/arch.h"

namespace mlxcel {

/// text_config, or the whole config where a family's older files have no such block.
Config text_config(const Config& config);

/// To the names of a text model: "language_model.model.*" and "model.language_model.*" become "model.*".
std::vector<Rule> text_side_rules();

/// Completes a wrapper: builder and rules of the family that text_config names, or of `family`.
Arch text_side(Arch wrapper, const char* family);
/// The family as a function of the wrapper's config, whatever text_config calls itself.
Arch text_side(Arch wrapper, std::function<std::string(const Config& wrapper)> family);
/// Rules that come before a wrapper's own: names that its exporters gave the text side, towers under theirs.
Arch preceded(Arch wrapper, std::vector<Rule> rules);

}  // namespace mlxcel
