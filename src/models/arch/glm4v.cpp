// GLM-4.1V and GLM-OCR: the text side, GLM-4's graph; its three positions are one where there is text only.
// Reference: transformers Glm4vForConditionalGeneration, GlmOcrForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_glm4v() {
  return text_side({.model_types = {"glm4v", "glm_ocr"},
                    .reference = "transformers Glm4vForConditionalGeneration",
                    .tiny = R"({"model_type": "glm4v", "text_config": {"model_type": "glm4v_text",
              "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.5, "attention_bias": true, "tie_word_embeddings": false}})"},
                   "glm4");
}

}  // namespace mlxcel
