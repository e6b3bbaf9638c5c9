// Mistral Small 4: latent attention whose queries grow with their position, softmax experts in groups beside
// shared ones. Reference: transformers Mistral4ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  auto moe = MoeOptions::grouped(c);
  moe.scoring = Scoring::softmax;
  moe.correction.clear();
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = mla_dims(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto moe = experts(c);
  auto mla = MlaOptions::from(c, d);
  const Config rope = c.child("rope_parameters");
  const auto scaling = rope.empty() ? c.child("rope_scaling") : rope;
  if (scaling.empty())
    fail(ErrorKind::bad_checkpoint, "{}: rope_parameters: expected this family's rotation, found nothing",
         c.where());
  if (scaling.has("llama_4_scaling_beta"))
    mla.temperature = {.factor = scaling.get<float>("llama_4_scaling_beta"),
                       .length = scaling.integer("original_max_position_embeddings", 1, kMaxPositions)};

  return pre_norm_decoder(c, w, d, eps,
                          {.mixer = [&](int, const Weights& layer) { return Mla(layer / "self_attn", mla); },
                           .ffn =
                               [&](int i, const Weights& layer) {
                                 return sparse_or_dense(layer / "mlp", c, d.hidden, moe,
                                                        is_sparse(c, i, d.layers));
                               }});
}

std::vector<Rule> rules(const Config& c, const Source&) {
  const auto mla = MlaOptions::from(c, mla_dims(c));
  auto list = stack_experts() + heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
  list.push_back(split_axis(-2, "*.mlp.experts.gate_up_proj",
                            {"*.mlp.switch_mlp.gate_proj.weight", "*.mlp.switch_mlp.up_proj.weight"}));
  list.push_back(rename("*.mlp.experts.down_proj", "*.mlp.switch_mlp.down_proj.weight"));
  return list;
}

}  // namespace

Arch arch_mistral4() {
  return {
      .model_types = {"mistral4"},
      .gguf = {"mistral4"},
      .reference = "transformers Mistral4ForCausalLM",
      .build = build,
      .weights = rules,
      .tiny = R"({"model_type": "mistral4", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "q_lora_rank": 64, "kv_lora_rank": 128,
              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "attention_bias": true,
              "rope_parameters": {"type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "mscale": 1.0,
              "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 12,
              "llama_4_scaling_beta": 0.6}, "first_k_dense_replace": 1, "n_routed_experts": 8,
              "n_shared_experts": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_group": 2,
              "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
