// Poolside Laguna: a number of heads for each layer, a rotation for each kind, a softplus on what each head
// gives; sigmoid experts whose logits may be capped. Reference: transformers LagunaForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 8);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth);
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.scoring = Scoring::sigmoid;
  moe.correction = "gate.e_score_correction_bias";
  moe.router_cap = c.get("moe_router_logit_softcapping", 0.0f);
  moe.renormalize = true;
  moe.scale = c.get("moe_routed_scaling_factor", 1.0f);
  moe.bank = "switch_mlp";
  moe.shared.width = c.integer("shared_expert_intermediate_size", 1, kMaxWidth);
  if (c.get("moe_apply_router_weight_on_input", false))
    fail(ErrorKind::unsupported, "{}: moe_apply_router_weight_on_input is not supported", c.where());
  return moe;
}

std::vector<int> heads_of(const Config& c, const Dims& d) {
  auto heads = c.get<std::vector<int>>("num_attention_heads_per_layer", {});
  if (heads.empty()) heads.assign(static_cast<size_t>(d.layers), d.heads);
  if (static_cast<int>(heads.size()) != d.layers)
    fail(ErrorKind::bad_checkpoint, "{}: num_attention_heads_per_layer: expected {} entries, found {}",
         c.where(), d.layers, heads.size());
  for (const int n : heads)
    if (n < 1 || n > kMaxHeads || n % d.kv_heads != 0)
      fail(ErrorKind::bad_checkpoint, "{}: num_attention_heads_per_layer: expected multiples of {}, found {}",
           c.where(), d.kv_heads, n);
  return heads;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8, .head_dim = 128});
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto norm = rms_norms(d.hidden, eps);
  const auto moe = experts(c);
  const auto heads = heads_of(c, d);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto full = Rope::from(c, d, {.theta = 500000.0f, .part = 0.5f, .layer_type = "full_attention"});
  const auto local = Rope::from(c, d, {.theta = 10000.0f, .layer_type = "sliding_attention"});
  const auto plan = LayerPlan::from(c, d.layers, c.integer("sliding_window", 0, kMaxPositions, 512),
                                    [](int) { return false; });
  const bool by_head =
      c.is_string("gating") ? c.get<std::string>("gating") == "per-head" : c.get("gating", true);

  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int i, const Weights& layer) {
    Dims own = d;
    own.heads = heads[static_cast<size_t>(i)];
    return PreNorm{
        .mixer_norm = norm(layer, "input_layernorm"),
        .mixer = Attention(layer / "self_attn", own,
                           {.rope = plan.sliding(i) ? local : full,
                            .qk_norm = HeadNormOptions{.eps = eps},
                            .window = plan.window(i),
                            .gate = OutputGate{.name = "g_proj", .per_head = by_head, .softplus = true},
                            .qkv_bias = bias,
                            .out_bias = bias}),
        .ffn_norm = norm(layer, "post_attention_layernorm"),
        .ffn = sparse_or_dense(layer / "mlp", c, d.hidden, moe, is_sparse(c, i, d.layers, 1))};
  });
}

std::vector<Rule> rules() {
  return std::vector<Rule>{
             rename("*.mlp.experts.e_score_correction_bias", "*.mlp.gate.e_score_correction_bias"),
             rename("*.mlp.shared_expert.*", "*.mlp.shared_experts.*")} +
         stack_experts();
}

}  // namespace

Arch arch_laguna() {
  return {.model_types = {"laguna"},
          .gguf = {"laguna"},
          .reference = "transformers LagunaForCausalLM",
          .build = build,
          .weights = rules(),
          .tiny = R"({"model_type": "laguna", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "num_attention_heads_per_layer": [6, 4, 2], "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-6, "rope_parameters": {"full_attention": {"rope_type": "default",
              "rope_theta": 50000.0, "partial_rotary_factor": 0.5}, "sliding_attention": {"rope_type": "default",
              "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}, "attention_bias": true, "gating": "per-head",
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 8,
              "mlp_layer_types": ["dense", "sparse", "sparse"], "num_experts": 6, "num_experts_per_tok": 3,
              "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "moe_routed_scaling_factor": 2.5,
              "moe_router_logit_softcapping": 2.0, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
