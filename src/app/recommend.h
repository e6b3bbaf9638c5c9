// `--recommend-quant`: advice from a model's configuration alone. Thread: any.
#pragma once

#include <filesystem>
#include <string>

namespace mlxcel::app {

/// `tokens`: the window meant to be used; 0: the model's.
std::string recommendation(const std::filesystem::path& model, int tokens);

}  // namespace mlxcel::app
