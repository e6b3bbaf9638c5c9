// Qwen2-VL and Qwen2.5-VL: their text side, which is Qwen2 where no image stands in the prompt. Reference:
// transformers Qwen2VLForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_qwen2_vl() {
  return text_side({.model_types = {"qwen2_vl", "qwen2_5_vl"},
                    .gguf = {"qwen2vl"},
                    .reference = "transformers Qwen2VLForConditionalGeneration",
                    .tiny = R"({"model_type": "qwen2_vl", "vocab_size": 256, "hidden_size": 192,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "rope_scaling": {"type": "mrope"}, "use_sliding_window": false,
              "max_window_layers": 1, "tie_word_embeddings": false})"},
                   "qwen2");
}

}  // namespace mlxcel
