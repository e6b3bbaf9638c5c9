// GLM-4 9B of 2024: half of each head is rotated in adjacent pairs, gate and up in one matrix. Reference:
// transformers GlmForCausalLM.
#include "models/glm_line.h"
#include "models/kit.h"

namespace mlxcel {

Arch arch_glm() {
  return {.model_types = {"glm"},
          .gguf = {"chatglm"},
          .reference = "transformers GlmForCausalLM",
          .build = +[](const Config& c, const Weights& w) { return glm_decoder(c, w, GlmNorms::before); },
          .weights = glm_rules(),
          .tiny = R"({"model_type": "glm", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "attention_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
