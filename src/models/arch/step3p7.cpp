// Step 3.7: the text side, which is Step 3.5. Reference: transformers Step3p7ForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_step3p7() {
  return preceded(text_side({.model_types = {"step3p7"},
                             .reference = "transformers Step3p7ForConditionalGeneration",
                             .tiny = R"({"model_type": "step3p7", "text_config": {"model_type": "step3p5",
              "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 32,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "sliding_window": 8,
              "rope_theta": [10000.0, 1000.0, 1000.0], "partial_rotary_factors": [0.5, 1.0, 1.0],
              "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
              "attention_other_setting": {"num_attention_heads": 4, "num_attention_groups": 2},
              "moe_layers_enum": "1,2", "moe_num_experts": 8, "moe_top_k": 3, "moe_intermediate_size": 64,
              "share_expert_dim": 64, "moe_router_scaling_factor": 1.5, "swiglu_limits": [0.0, 0.3, 0.0],
              "swiglu_limits_shared": [0.3, 0.0, 0.3], "tie_word_embeddings": false}})"},
                            "step3p5"),
                  {drop("vit_large_projector.*")});
}

}  // namespace mlxcel
