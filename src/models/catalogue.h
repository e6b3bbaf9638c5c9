// docs/supported-models.md, made from the table of architectures and the names of the golden files, so that
// it says what is proven and nothing else. Thread: any.
#pragma once

#include <string>
#include <vector>

namespace mlxcel {

/// "llama-gqa", …: the files of tests/golden/data when this was built.
const std::vector<std::string>& golden_names();

/// The document.
std::string supported_models();

}  // namespace mlxcel
