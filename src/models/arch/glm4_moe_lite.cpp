// GLM-4.7-Flash: DeepSeek-V3's graph; which layers are sparse is a list. Reference: transformers
// Glm4MoeLiteForCausalLM.
#include "models/kit.h"
#include "models/latent_moe.h"

namespace mlxcel {

namespace {

constexpr LatentMoeDefaults kDefaults{
    .eps = 1e-5f, .groups = 1, .kept_groups = 1, .dense_layers = 1, .scale = 1.8f};

/// Its block, in the checkpoint or in a folder of its own (`mlxcel split-mtp`).
MtpArch mtp() {
  MtpArch arch = latent_mtp(kDefaults);
  arch.drafters = {"glm4_moe_lite_mtp"};
  return arch;
}

}  // namespace

Arch arch_glm4_moe_lite() {
  return {
      .model_types = {"glm4_moe_lite"},
      .gguf = {"deepseek2"},
      .reference = "transformers Glm4MoeLiteForCausalLM",
      .build = +[](const Config& c, const Weights& w) { return latent_moe_decoder(c, w, kDefaults); },
      .weights = [](const Config& c, const Source&) { return latent_moe_rules(c); },
      .mtp = mtp(),
      .tiny =
          R"({"model_type": "glm4_moe_lite", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "q_lora_rank": 64, "kv_lora_rank": 64,
              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 128, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_interleave": false,
              "mlp_layer_types": ["dense", "sparse", "sparse"], "n_routed_experts": 8, "n_shared_experts": 2,
              "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1,
              "norm_topk_prob": true, "routed_scaling_factor": 1.8, "num_nextn_predict_layers": 1,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
