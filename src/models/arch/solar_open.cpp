// Solar Open: Llama's attention, DeepSeek-V3's experts in every layer. Reference: transformers
// SolarOpenForCausalLM.
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8, .head_dim = 128});
  const auto moe = MoeOptions::grouped(c);
  const auto rope = Rope::from(c, d, {.theta = 1000000.0f});

  return sparse_decoder(c, w, d, epsilon(c, "rms_norm_eps", 1e-5f),
                        {[&](int) {
                           return AttentionOptions{.rope = rope,
                                                   .qkv_bias = bias_if(c.get("attention_bias", false)),
                                                   .out_bias = Bias::none};
                         },
                         moe});
}

}  // namespace

Arch arch_solar_open() {
  return {
      .model_types = {"solar_open"},
      .gguf = {},
      .reference = "transformers SolarOpenForCausalLM",
      .build = build,
      .weights = stack_experts(),
      .tiny = R"({"model_type": "solar_open", "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.5, "attention_bias": true, "n_routed_experts": 9, "n_shared_experts": 1,
              "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_group": 3, "topk_group": 2,
              "norm_topk_prob": true, "routed_scaling_factor": 1.5, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
