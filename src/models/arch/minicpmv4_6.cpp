// MiniCPM-V 4.6: the text side, which is Qwen3.5. Reference: transformers
// MiniCPMV4_6ForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_minicpmv4_6() {
  return preceded(
      text_side({.model_types = {"minicpmv4_6"},
                 .reference = "transformers MiniCPMV4_6ForConditionalGeneration",
                 .tiny = R"({"model_type": "minicpmv4_6", "text_config": {"model_type": "qwen3_5_text",
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "attention_bias": false,
              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
              "layer_types": ["linear_attention", "full_attention", "linear_attention"],
              "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 24,
              "linear_value_head_dim": 64, "linear_conv_kernel_dim": 3, "num_experts": 0}})"},
                "qwen3_5"),
      {drop("vpm.*"), drop("merger.*"), drop("model.merger.*"), rename("llm.*", "*")});
}

}  // namespace mlxcel
