// DeepSeek-V3 and R1, Kimi K2: latent attention; sigmoid experts chosen with a correction bias from the best
// groups (by their best two). Reference: transformers DeepseekV3ForCausalLM.
#include "models/kit.h"
#include "models/latent_moe.h"

namespace mlxcel {

Arch arch_deepseek_v3() {
  return {
      .model_types = {"deepseek_v3", "kimi_k2", "joyai_llm_flash"},
      .gguf = {"deepseek2"},
      .reference = "transformers DeepseekV3ForCausalLM",
      .build = +[](const Config& c, const Weights& w) { return latent_moe_decoder(c, w, {}); },
      .weights = [](const Config& c, const Source&) { return latent_moe_rules(c); },
      .mtp = latent_mtp({}),
      .tiny = R"({"model_type": "deepseek_v3", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "q_lora_rank": 64, "kv_lora_rank": 128,
              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": true,
              "rope_scaling": {"type": "yarn", "factor": 8.0, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32,
              "beta_slow": 1, "original_max_position_embeddings": 64}, "first_k_dense_replace": 1,
              "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
              "n_group": 2, "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
              "num_nextn_predict_layers": 1, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
