// Llama 4: its text side, with experts. Reference: transformers Llama4ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

Arch arch_llama4() {
  return text_side({.model_types = {"llama4"},
                    .gguf = {"llama4"},
                    .reference = "transformers Llama4ForCausalLM",
                    .tiny = R"({"model_type": "llama4", "text_config": {"vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 64, "intermediate_size_mlp": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-2, "rope_theta": 10000.0, "num_local_experts": 4,
              "num_experts_per_tok": 2, "moe_layers": [1, 2], "no_rope_layers": [1, 0, 1],
              "attention_chunk_size": 9, "attn_temperature_tuning": true, "floor_scale": 7, "attn_scale": 0.5,
              "use_qk_norm": true, "attention_bias": true, "tie_word_embeddings": false}})"},
                   "llama4_text");
}

}  // namespace mlxcel
