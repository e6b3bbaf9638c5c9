// Mage-VL: the text side, which is Qwen 3 with positions on one axis. Reference: transformers
// Qwen3ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

Arch arch_mage_vl() {
  return text_side({.model_types = {"mage_vl"},
                    .reference = "transformers Qwen3ForCausalLM",
                    .tiny = R"({"model_type": "mage_vl", "text_config": {"model_type": "qwen3",
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default",
              "rope_theta": 10000.0}, "tie_word_embeddings": false}})"},
                   "qwen3");
}

}  // namespace mlxcel
