// Gemma 4, alone or inside its wrapper. Reference: transformers Gemma4ForCausalLM.
#include "models/gemma4.h"
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) { return gemma4_decoder(c, w); }

}  // namespace

Arch arch_gemma4_text() {
  return {
      .model_types = {"gemma4_text", "gemma4", "gemma4_unified", "gemma4_unified_text"},
      .gguf = {"gemma4"},
      .reference = "transformers Gemma4ForCausalLM",
      .build = build,
      .weights = gemma4_rules(),
      .tiny = R"({"model_type": "gemma4_text", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "global_head_dim": 48, "num_global_key_value_heads": 1, "attention_k_eq_v": true,
              "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 10000.0,
                                                     "partial_rotary_factor": 0.25},
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}},
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
              "sliding_window": 8, "num_kv_shared_layers": 2, "use_double_wide_mlp": true,
              "hidden_size_per_layer_input": 64, "vocab_size_per_layer_input": 256, "enable_moe_block": true,
              "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 64, "attention_bias": true,
              "final_logit_softcapping": 5.0, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
