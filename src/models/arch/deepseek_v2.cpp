// DeepSeek-V2: latent attention, or the usual one where the config says so; softmax over experts, of which
// the best groups (by their maximum) are eligible. Reference: transformers DeepseekV2ForCausalLM.
#include "models/deepseek_v2.h"
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

/// The small texts of DeepSeek-VL2 and DeepSeek-OCR are not.
bool latent(const Config& c) {
  return c.get("use_mla", c.get<std::string>("model_type", "") != "deepseek_ocr2_text");
}

Decoder plain_decoder(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto rope = Rope::from(c, d);
  const Bias bias = bias_if(c.get("attention_bias", false));
  return sparse_decoder(
      c, w, d, epsilon(c, "rms_norm_eps", 1e-6f),
      {[&](int) { return AttentionOptions{.rope = rope, .qkv_bias = bias, .out_bias = bias}; },
       deepseek_v2_experts(c), [&](int i) { return is_sparse(c, i, d.layers, 0); }});
}

Decoder build(const Config& c, const Weights& w) {
  if (!latent(c)) return plain_decoder(c, w);
  const auto d = mla_dims(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto moe = deepseek_v2_experts(c);
  const auto mla = MlaOptions::from(c, d);

  return pre_norm_decoder(c, w, d, eps,
                          {.mixer = [&](int, const Weights& layer) { return Mla(layer / "self_attn", mla); },
                           .ffn =
                               [&](int i, const Weights& layer) {
                                 return sparse_or_dense(layer / "mlp", c, d.hidden, moe,
                                                        is_sparse(c, i, d.layers, 0));
                               }});
}

std::vector<Rule> rules(const Config& c, const Source&) {
  if (!latent(c)) return stack_experts();
  const auto mla = MlaOptions::from(c, mla_dims(c));
  return stack_experts() + heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
}

}  // namespace

Arch arch_deepseek_v2() {
  return {
      .model_types = {"deepseek_v2"},
      .gguf = {"deepseek2"},
      .reference = "transformers DeepseekV2ForCausalLM",
      .build = build,
      .weights = rules,
      .tiny =
          R"({"model_type": "deepseek_v2", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 4, "q_lora_rank": null, "kv_lora_rank": 64,
              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "rope_scaling": {"type": "yarn", "factor": 8.0, "mscale": 0.7, "mscale_all_dim": 0.7, "beta_fast": 32,
              "beta_slow": 1, "original_max_position_embeddings": 64}, "first_k_dense_replace": 1,
              "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
              "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "norm_topk_prob": false,
              "routed_scaling_factor": 4.0, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
