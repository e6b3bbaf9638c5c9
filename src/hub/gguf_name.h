// What GGUF file names say: the quantisation and the parts of a split set. Thread: any.
#pragma once

#include <string>
#include <vector>

namespace mlxcel {

/// "Q4_K_M" of "dir/SmolLM2-135M-Instruct.Q4_K_M.gguf" or of a stem; empty where no word names one.
std::string gguf_quant(const std::string& path);
/// File name without folder, ".gguf" and part number.
std::string gguf_stem(const std::string& path);
/// A model (no projector, importance matrix or hidden file).
bool is_gguf_model(const std::string& path);
/// The file (first part) a quantisation means, any case; empty quant: Q4_K_M, else the first in name order.
/// Empty where there is none.
std::string pick_gguf(const std::vector<std::string>& paths, const std::string& quant);
/// All parts of the set `path` belongs to, in order; just itself where it is whole, nothing where it is no
/// GGUF.
std::vector<std::string> gguf_parts(const std::vector<std::string>& paths, const std::string& path);

}  // namespace mlxcel
