// GLM-4-0414: glm with norms around every sublayer. Reference: transformers Glm4ForCausalLM.
#include "models/glm_line.h"
#include "models/kit.h"

namespace mlxcel {

Arch arch_glm4() {
  return {.model_types = {"glm4"},
          .gguf = {"glm4"},
          .reference = "transformers Glm4ForCausalLM",
          .build = +[](const Config& c, const Weights& w) { return glm_decoder(c, w, GlmNorms::around); },
          .weights = glm_rules(),
          .tiny = R"({"model_type": "glm4", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "attention_bias": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
