// `bench --masks`: what constrained answers cost a token over this model's vocabulary. Thread: main.
#pragma once

#include <string>

#include "app/options.h"

namespace mlxcel::app {

/// Compiles a grammar of each kind, follows texts through it and prints what a token's mask takes and what
/// laying it over a row of logits does; the weights are not read. The exit code.
int bench_masks(const ModelFlags& model, int repetitions, const std::string& format);

}  // namespace mlxcel::app
