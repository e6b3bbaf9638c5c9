// Youtu-VL: the text side, which is Youtu-LLM. Reference: transformers YoutuForCausalLM.
#include "models/kit.h"

namespace mlxcel {

Arch arch_youtu_vl() {
  return preceded(text_side({.model_types = {"youtu_vl"},
                             .reference = "transformers YoutuForCausalLM",
                             .tiny = R"({"model_type": "youtu_vl", "vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 6, "q_lora_rank": 64,
              "kv_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "tie_word_embeddings": true})"},
                            "youtu_llm"),
                  {drop("siglip2.*"), drop("merger.*")});
}

}  // namespace mlxcel
