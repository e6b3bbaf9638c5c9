// Command A Vision and Aya Vision: the text side. Reference: transformers
// Cohere2VisionForConditionalGeneration, AyaVisionForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_cohere2_vision() {
  return text_side({.model_types = {"cohere2_vision", "aya_vision"},
                    .reference = "transformers Cohere2VisionForConditionalGeneration",
                    .tiny = R"({"model_type": "cohere2_vision", "text_config": {"model_type": "cohere2",
              "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128, "num_hidden_layers": 4,
              "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu", "logit_scale": 0.25,
              "max_position_embeddings": 512, "layer_norm_eps": 1e-5, "rope_theta": 10000.0,
              "sliding_window": 8, "sliding_window_pattern": 4}})"},
                   "cohere2");
}

}  // namespace mlxcel
