// Ling and Ring (models/bailing.h). Reference: mlx-lm bailing_moe.
#include "models/bailing.h"
#include "models/kit.h"

namespace mlxcel {

Arch arch_bailing_moe() {
  return {
      .model_types = {"bailing_moe"},
      .gguf = {"bailingmoe", "bailingmoe2"},
      .reference = "mlx-lm bailing_moe",
      .build = +[](const Config& c, const Weights& w) { return bailing_decoder(c, w, {}); },
      .weights = [](const Config& c, const Source&) { return bailing_rules(c); },
      .mtp = bailing_mtp({}),
      .tiny =
          R"({"model_type": "bailing_moe", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.5, "use_bias": false, "use_qkv_bias": true, "use_qk_norm": true,
              "first_k_dense_replace": 1, "num_experts": 8, "num_shared_experts": 1, "num_experts_per_tok": 3,
              "moe_intermediate_size": 64, "n_group": 4, "topk_group": 2, "norm_topk_prob": true,
              "score_function": "sigmoid", "moe_router_enable_expert_bias": true, "routed_scaling_factor": 2.5,
              "norm_head": false, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
