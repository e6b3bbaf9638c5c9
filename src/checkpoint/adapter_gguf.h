// LoRA adapters in one GGUF file, as llama.cpp's convert_lora_to_gguf writes them: general.type "adapter",
// adapter.type "lora", adapter.lora.alpha, and for a weight X of the base "X.lora_a" [rank, in] and
// "X.lora_b" [out, rank]; of token_embd "lora_a" [rows, rank] and "lora_b" [width, rank]. Owner: value.
// Thread: any. Failure: as AdapterFiles::read().
#pragma once

#include <filesystem>

#include "checkpoint/adapter_files.h"

namespace mlxcel {

AdapterFiles read_gguf_adapter(const std::filesystem::path& file);

}  // namespace mlxcel
