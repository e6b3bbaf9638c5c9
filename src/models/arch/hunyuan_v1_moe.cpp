// Hunyuan A13B. Reference: transformers HunYuanMoEV1ForCausalLM.
#include "models/hunyuan.h"
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) { return hunyuan_decoder(c, w, false); }

}  // namespace

Arch arch_hunyuan_v1_moe() {
  return {.model_types = {"hunyuan_v1_moe"},
          .gguf = {"hunyuan-moe"},
          .reference = "transformers HunYuanMoEV1ForCausalLM",
          .build = build,
          .weights = hunyuan_rules(),
          .tiny = R"({"model_type": "hunyuan_v1_moe", "vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-5, "rope_theta": 100.0, "rope_scaling": {"type": "dynamic", "alpha": 20.0},
              "attention_bias": true, "num_experts": 6, "moe_topk": [2, 3, 2], "num_shared_expert": 1,
              "moe_intermediate_size": 64, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
