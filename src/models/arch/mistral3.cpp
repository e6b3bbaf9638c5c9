// Mistral Small 3 and Ministral 3 with a vision tower, and Pixtral and LLaVA in their shape: the text side,
// of the family that text_config names. Reference: transformers Mistral3ForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_mistral3() {
  return text_side(
      {.model_types = {"mistral3", "pixtral", "llava"},
       .reference = "transformers Mistral3ForConditionalGeneration, LlavaForConditionalGeneration",
       .tiny = R"({"model_type": "mistral3", "text_config": {"model_type": "mistral",
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "sliding_window": 8}})"},
      "mistral");
}

}  // namespace mlxcel
