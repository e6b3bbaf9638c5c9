// Kimi K2.5 and Kimi-VL: DeepSeek-V3 behind a vision tower that is left out. Reference: mlx-lm kimi_k25.
#include "models/kit.h"

namespace mlxcel {

Arch arch_kimi_k25() {
  Arch arch = text_side(
      {.model_types = {"kimi_k25", "kimi_vl"},
       .reference = "mlx-lm kimi_k25",
       .tiny = R"({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", "vocab_size": 256,
              "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
              "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
              "v_head_dim": 64, "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 50000.0, "first_k_dense_replace": 1, "n_routed_experts": 6, "n_shared_experts": 1,
              "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1,
              "norm_topk_prob": true, "routed_scaling_factor": 2.8, "tie_word_embeddings": false}})"},
      "deepseek_v3");
  return preceded(std::move(arch), {drop("mm_projector.*")});
}

}  // namespace mlxcel
