// LongCat-Flash (models/longcat.h). Reference: mlx-lm longcat_flash.
#include "models/kit.h"
#include "models/longcat.h"

namespace mlxcel {

Arch arch_longcat_flash() {
  return {
      .model_types = {"longcat_flash"},
      .gguf = {},
      .reference = "mlx-lm longcat_flash",
      .build = +[](const Config& c, const Weights& w) { return longcat_decoder(c, w); },
      .weights = [](const Config& c, const Source&) { return longcat_rules(c); },
      .mtp = longcat_mtp(),
      .tiny = R"({"model_type": "longcat_flash", "vocab_size": 256, "hidden_size": 64, "ffn_hidden_size": 192,
              "num_layers": 2, "num_attention_heads": 6, "q_lora_rank": 64, "kv_lora_rank": 64,
              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "n_routed_experts": 6,
              "zero_expert_num": 3, "moe_topk": 4, "expert_ffn_hidden_size": 64, "routed_scaling_factor": 3.0,
              "norm_topk_prob": false, "router_bias": true, "zero_expert_type": "identity",
              "mla_scale_q_lora": true, "mla_scale_kv_lora": true, "attention_bias": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
