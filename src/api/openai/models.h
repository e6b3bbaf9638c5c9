// GET /v1/models: what is served, with the Ollama-like block that some clients read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mlxcel::openai {

struct ModelEntry {
  std::string id;
  int64_t created = 0;
  std::vector<std::string> aliases, tags, capabilities;
  std::string vocab_type;  // empty: unknown
  int64_t n_vocab = 0, n_ctx_train = 0, n_ctx = 0, n_embd = 0;
  int64_t n_params = 0, size = 0;
  std::string format;  // "safetensors" or "gguf"
  std::string family, quantization;
  std::vector<std::pair<std::string, std::string>> more;  // members of a router's entry, as JSON
};

std::string print_model(const ModelEntry& entry);
std::string print_models(const std::vector<ModelEntry>& entries);

}  // namespace mlxcel::openai
