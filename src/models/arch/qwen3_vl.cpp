// Qwen3-VL: its text side, which is Qwen3 where no image stands in the prompt. Reference: transformers
// Qwen3VLForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_qwen3_vl() {
  return text_side({.model_types = {"qwen3_vl"},
                    .gguf = {"qwen3vl"},
                    .reference = "transformers Qwen3VLForConditionalGeneration",
                    .tiny = R"({"model_type": "qwen3_vl", "tie_word_embeddings": true,
              "text_config": {"model_type": "qwen3_vl_text", "vocab_size": 256,
              "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": true}})"},
                   "qwen3");
}

}  // namespace mlxcel
