// One table per GGUF architecture; each is defined in gguf_<architecture>.cpp or with its close relatives.
#pragma once

#include "checkpoint/rules/gguf_arch.h"

namespace mlxcel {

const GgufArch& gguf_qwen2();
const GgufArch& gguf_qwen3();
const GgufArch& gguf_qwen3moe();
const GgufArch& gguf_qwen3vlmoe();
const GgufArch& gguf_gpt2();
const GgufArch& gguf_mamba2();
const GgufArch& gguf_bert();
const GgufArch& gguf_rwkv7();

// Several close relatives in one file.
std::span<const GgufArch> gguf_llamas();     // llama, llama-embed
std::span<const GgufArch> gguf_gemmas();     // gemma, gemma2
std::span<const GgufArch> gguf_gemma3s();    // gemma3, gemma-embedding
std::span<const GgufArch> gguf_llama_kin();  // granite, smollm3, olmo, olmo2, internlm2, minicpm, ...
std::span<const GgufArch>
gguf_layer_norm_kin();  // starcoder2, stablelm, command-r, cohere2, nemotron, starcoder
std::span<const GgufArch> gguf_phis_and_glms();      // phi3, phi2, glm4
std::span<const GgufArch> gguf_experts();            // qwen2moe, deepseek, dots1, glm4moe, gpt-oss, ...
std::span<const GgufArch> gguf_experts_otherwise();  // olmoe, granitemoe, afmoe, minimax-m3, ...
std::span<const GgufArch> gguf_experts_apart();      // llama4, dbrx, cohere2moe
std::span<const GgufArch>
gguf_latent();  // deepseek2, deepseek32, glm-dsa, mistral4, minicpm3, kimi-linear, ...
std::span<const GgufArch> gguf_pooled();            // deepseek4
std::span<const GgufArch> gguf_scans();             // mamba, jamba, plamo2, falcon-h1, nemotron_h, ...
std::span<const GgufArch> gguf_lfm2s();             // lfm2, lfm2moe
std::span<const GgufArch> gguf_deltas();            // qwen3next, qwen35, qwen35moe
std::span<const GgufArch> gguf_encoders();          // modern-bert
std::span<const GgufArch> gguf_late_gemmas();       // gemma3n, gemma4
std::span<const GgufArch> gguf_decoders_apart();    // apertus, openelm, deci, qwen, gptneox, ...
std::span<const GgufArch> gguf_windowed_experts();  // mellum, laguna, step35, mimo2

}  // namespace mlxcel
