// The tokenizer of a GGUF file as the files of a Hugging Face folder: for models written anew in that layout.
// Thread: any. Failure: bad_checkpoint for keys of another type; unsupported names what has no such form yet.
#pragma once

#include <map>
#include <string>

#include "checkpoint/checkpoint.h"

namespace mlxcel {

/// tokenizer.json and tokenizer_config.json (with the chat template), by file name. Byte-level vocabularies
/// of the usual kinds (GPT-2, Llama 3, Qwen 2, SmolLM); others are unsupported.
std::map<std::string, std::string> tokenizer_files(const GgufMetadata& metadata);

}  // namespace mlxcel
