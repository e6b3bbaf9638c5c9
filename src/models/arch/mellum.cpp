// Mellum 2: Qwen3's attention with windows and a rotation for each kind of layer, softmax experts. Reference:
// transformers MellumForCausalLM.
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer(c.has("num_experts") ? "num_experts" : "num_local_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 8);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth);
  moe.renormalize = c.get("norm_topk_prob", true);
  moe.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  moe.bank = "switch_mlp";
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 4, .head_dim = 128});
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto moe = experts(c);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto full = Rope::from(c, d, {.theta = 500000.0f, .layer_type = "full_attention"});
  const auto local = Rope::from(c, d, {.theta = 10000.0f, .layer_type = "sliding_attention"});
  const auto plan = LayerPlan::from(c, d.layers, c.integer("sliding_window", 0, kMaxPositions, 1024),
                                    [](int) { return false; });

  return sparse_decoder(c, w, d, eps,
                        {[&](int i) {
                           return AttentionOptions{.rope = plan.sliding(i) ? local : full,
                                                   .qk_norm = HeadNormOptions{.eps = eps},
                                                   .window = plan.window(i),
                                                   .qkv_bias = bias,
                                                   .out_bias = bias};
                         },
                         moe, [&](int i) { return is_sparse(c, i, d.layers); }});
}

}  // namespace

Arch arch_mellum() {
  return {.model_types = {"mellum"},
          .gguf = {"mellum"},
          .reference = "transformers MellumForCausalLM",
          .build = build,
          .weights = std::vector<Rule>{drop("mtp.*")} + stack_experts(),
          .tiny = R"({"model_type": "mellum", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 50000.0, "factor": 4.0,
              "original_max_position_embeddings": 128}, "sliding_attention": {"rope_type": "default",
              "rope_theta": 10000.0}}, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
              "mlp_layer_types": ["dense", "sparse", "sparse"], "sliding_window": 8, "attention_bias": true,
              "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
