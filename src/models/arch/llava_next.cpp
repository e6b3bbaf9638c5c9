// LLaVA-NeXT and Granite Vision's older files: the text side of Llama, Mistral, Qwen 2 or Granite. Reference:
// transformers LlavaNextForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_llava_next() {
  return text_side({.model_types = {"llava_next", "granite_vision"},
                    .reference = "transformers LlavaNextForConditionalGeneration",
                    .tiny = R"({"model_type": "llava_next", "text_config": {"model_type": "llama",
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}})"},
                   "llama");
}

}  // namespace mlxcel
