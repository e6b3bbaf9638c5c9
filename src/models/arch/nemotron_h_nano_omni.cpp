// Nemotron Nano Omni: the text side, which is Nemotron-H. Reference: transformers NemotronHForCausalLM.
#include "models/kit.h"

namespace mlxcel {

Arch arch_nemotron_h_nano_omni() {
  return preceded(
      text_side({.model_types = {"nemotron_h_nano_omni", "nemotronh_nano_omni_reasoning_v3",
                                 "NemotronH_Nano_Omni_Reasoning_V3"},
                 .reference = "transformers NemotronHForCausalLM",
                 .tiny = R"({"model_type": "nemotron_h_nano_omni", "llm_config": {"model_type": "nemotron_h",
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "hybrid_override_pattern": "M*-E",
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512,
              "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2", "mlp_bias": false, "mamba_num_heads": 6,
              "mamba_head_dim": 32, "ssm_state_size": 12, "n_groups": 3, "conv_kernel": 4, "use_bias": false,
              "use_conv_bias": true, "time_step_min": 0.05, "n_routed_experts": 8, "num_experts_per_tok": 3,
              "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 64, "n_group": 1,
              "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.5,
              "tie_word_embeddings": false}})"},
                "nemotron_h"),
      {drop("mlp1.*"), drop("sound_encoder.*"), drop("sound_projection.*")});
}

}  // namespace mlxcel
