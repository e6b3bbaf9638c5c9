// FastVLM and dots.ocr: the text side of Qwen 2 whose config stands beside the tower's. Reference:
// transformers Qwen2ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

Arch arch_llava_qwen2() {
  return text_side({.model_types = {"llava_qwen2", "fastvlm", "dots_ocr"},
                    .reference = "transformers Qwen2ForCausalLM",
                    .tiny = R"({"model_type": "llava_qwen2", "vocab_size": 256, "hidden_size": 192,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1,
              "tie_word_embeddings": true})"},
                   "qwen2");
}

}  // namespace mlxcel
