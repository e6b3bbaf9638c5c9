// One table per GGUF architecture; each is defined in gguf_<architecture>.cpp or with its close relatives.
#pragma once

#include "checkpoint/rules/gguf_arch.h"

namespace mlxcel {

const GgufArch& gguf_llama();
const GgufArch& gguf_qwen2();
const GgufArch& gguf_qwen3();
const GgufArch& gguf_qwen3moe();
const GgufArch& gguf_gemma3();
const GgufArch& gguf_gpt2();
const GgufArch& gguf_mamba2();
const GgufArch& gguf_bert();

}  // namespace mlxcel
