// Qwen3 sparse decoders: qwen3's attention, experts in place of the MLP. Reference: transformers
// Qwen3MoeForCausalLM.
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer(c.has("num_experts") ? "num_experts" : "num_local_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth);
  // Qwen3-VL's experts always share a sum of one.
  moe.renormalize =
      c.get("norm_topk_prob", false) || c.get<std::string>("model_type", "") == "qwen3_vl_moe_text";
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.bank = "switch_mlp";
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const bool sees = c.get<std::string>("model_type", "").starts_with("qwen3_vl");
  const auto d = Dims::from(c, {.kv_heads = sees ? 16 : 4});
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto moe = experts(c);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const int window =
      c.get("use_sliding_window", false) ? c.integer("sliding_window", 1, kMaxPositions, 4096) : 0;
  const auto rope = Rope::from(c, d, {.theta = sees ? 500000.0f : 10000.0f});
  return sparse_decoder(c, w, d, eps,
                        {[&](int) {
                           return AttentionOptions{.rope = rope,
                                                   .qk_norm = HeadNormOptions{.eps = eps},
                                                   .window = window,
                                                   .qkv_bias = bias,
                                                   .out_bias = bias};
                         },
                         moe, [&](int i) { return is_sparse_by_step(c, i); }});
}

}  // namespace

Arch arch_qwen3_moe() {
  return {
      .model_types = {"qwen3_moe", "qwen3_vl_moe_text"},
      .gguf = {"qwen3moe"},
      .reference = "transformers Qwen3MoeForCausalLM",
      .build = build,
      .weights = {stack("*.mlp.experts.#.*", "*.mlp.switch_mlp.*")},
      .tiny = R"({"model_type": "qwen3_moe", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0,
              "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": true,
              "decoder_sparse_step": 1, "mlp_only_layers": [1], "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
