// GLM-4.7-Flash: DeepSeek-V3's graph; which layers are sparse is a list. Reference: transformers
// Glm4MoeLiteForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = mla_dims(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto moe = MoeOptions::grouped(c);
  const auto mla = MlaOptions::from(c, d);

  return pre_norm_decoder(c, w, d, eps,
                          {.mixer = [&](int, const Weights& layer) { return Mla(layer / "self_attn", mla); },
                           .ffn =
                               [&](int i, const Weights& layer) {
                                 return sparse_or_dense(layer / "mlp", c, d.hidden, moe,
                                                        is_sparse(c, i, d.layers, 1));
                               }});
}

std::vector<Rule> rules(const Config& c, const Source&) {
  const auto d = mla_dims(c);
  const auto mla = MlaOptions::from(c, d);
  return drop_layers("model.layers", d.layers, c.integer("num_nextn_predict_layers", 0, 64, 1)) +
         stack_experts() + heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
}

}  // namespace

Arch arch_glm4_moe_lite() {
  return {
      .model_types = {"glm4_moe_lite"},
      .gguf = {"deepseek2"},
      .reference = "transformers Glm4MoeLiteForCausalLM",
      .build = build,
      .weights = rules,
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
