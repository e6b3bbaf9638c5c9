// Qwen3-Omni: the thinker's text side; the talker and its codec are left out. Reference: transformers
// Qwen3OmniMoeThinkerForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_qwen3_omni_moe() {
  Arch arch = text_side({.model_types = {"qwen3_omni_moe", "qwen3_omni_moe_thinker"},
                         .reference = "transformers Qwen3OmniMoeThinkerForConditionalGeneration",
                         .tiny = R"({"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": {
              "model_type": "qwen3_omni_moe_text", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": true,
              "decoder_sparse_step": 1, "mlp_only_layers": [1], "tie_word_embeddings": false}}})"},
                        "qwen3_moe");
  return preceded(std::move(arch), {drop("talker.*"), drop("code2wav.*"), rename("thinker.*", "*")});
}

}  // namespace mlxcel
