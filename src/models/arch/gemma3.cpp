// Gemma 3 with a vision tower: its text side. Reference: transformers Gemma3ForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_gemma3() {
  return text_side({.model_types = {"gemma3"},
                    .reference = "transformers Gemma3ForConditionalGeneration",
                    .tiny = R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
              "head_dim": 16, "max_position_embeddings": 512, "sliding_window": 8,
              "sliding_window_pattern": 2, "query_pre_attn_scalar": 24,
              "rope_scaling": {"rope_type": "linear", "factor": 8.0}}})"},
                   "gemma3_text");
}

}  // namespace mlxcel
