// GLM-4.5V: the text side, GLM-4.5's graph. Reference: transformers Glm4vMoeForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_glm4v_moe() {
  return text_side({.model_types = {"glm4v_moe"},
                    .reference = "transformers Glm4vMoeForConditionalGeneration",
                    .tiny = R"({"model_type": "glm4v_moe", "text_config": {"model_type": "glm4v_moe_text",
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.5, "attention_bias": true, "use_qk_norm": false,
              "first_k_dense_replace": 1, "n_routed_experts": 6, "n_shared_experts": 1, "num_experts_per_tok": 3,
              "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
              "routed_scaling_factor": 1.5, "num_nextn_predict_layers": 0, "tie_word_embeddings": false}})"},
                   "glm4_moe");
}

}  // namespace mlxcel
