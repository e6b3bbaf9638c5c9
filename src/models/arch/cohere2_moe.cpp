// Command with experts: cohere2's parallel block and its windows, a dense prefix, experts by softmax over the
// chosen or by sigmoid, shared ones averaged or summed. Reference: transformers Cohere2MoeForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096, 8);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 2);
  moe.width = c.integer("intermediate_size", 1, 1 << 16, 22528);
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.bank = "switch_mlp";
  const auto choice = c.get<std::string>("expert_selection_fn", "softmax");
  if (choice != "softmax" && choice != "sigmoid")
    fail(ErrorKind::unsupported, "{}: expert_selection_fn \"{}\": expected softmax or sigmoid", c.where(),
         choice);
  moe.scoring = choice == "softmax" ? Scoring::chosen_softmax : Scoring::sigmoid;
  moe.renormalize = choice == "sigmoid" && c.get("norm_topk_prob", true);
  const auto mix = c.get<std::string>("shared_expert_combination_strategy", "average");
  if (mix != "average" && mix != "sum")
    fail(ErrorKind::unsupported, "{}: shared_expert_combination_strategy \"{}\": expected average or sum",
         c.where(), mix);
  moe.shared = {.width = moe.width * c.integer("num_shared_experts", 0, 64, 0),
                .mix = mix == "sum" ? SharedMix::sum : SharedMix::average};
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto norm = c.has("rms_norm_eps")
                        ? rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-5f))
                        : layer_norms(d.hidden, epsilon(c, "layer_norm_eps", 1e-5f), Bias::none);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const int pattern = c.integer("sliding_window_pattern", 1, kMaxLayers, 4);
  const int prefix_pattern = c.integer("prefix_dense_sliding_window_pattern", 1, kMaxLayers, 1);
  const int first = c.integer("first_k_dense_replace", 0, kMaxLayers, 0);
  const auto plan = LayerPlan::from(
      c, d.layers, c.integer("sliding_window", 0, kMaxPositions, 4096),
      [&](int i) { return i < first ? (i + 1) % prefix_pattern != 0 : (i - first + 1) % pattern != 0; });
  const auto rope = Rope::from(c, d, {.interleaved = true});
  const auto moe = experts(c);
  const int dense = c.integer("prefix_dense_intermediate_size", 1, kMaxWidth, moe.width);
  auto model = standard_decoder(w, d, norm, {.tie = tied(c, true)}, [&](int i, const Weights& layer) {
    const bool sparse = is_sparse(c, i, d.layers);
    const bool turns = plan.sliding(i) || (!sparse && prefix_pattern == 1);
    const auto ffn = [&](const Weights& mlp) {
      if (sparse) return Ffn(SparseMoe(mlp, d.hidden, moe));
      return Ffn(GatedMlp(mlp, d.hidden, dense, moe.activation, Bias::none));
    };
    return Parallel{
        .norm = norm(layer, "input_layernorm"),
        .mixer = Attention(
            layer / "self_attn", d,
            {.rope = rope_if(turns, rope), .window = plan.window(i), .qkv_bias = bias, .out_bias = bias}),
        .ffn = ffn(layer / "mlp")};
  });
  model.logit_scale(factor(c, "logit_scale", 0.0625f));
  return model;
}

std::vector<Rule> weights(const Config&, const Source&) {
  auto rules = stack_experts();
  rules.push_back(split_axis(-2, "*.mlp.experts.gate_up_proj",
                             {"*.mlp.switch_mlp.gate_proj.weight", "*.mlp.switch_mlp.up_proj.weight"}));
  rules.push_back(rename("*.mlp.experts.down_proj", "*.mlp.switch_mlp.down_proj.weight"));
  return rules;
}

}  // namespace

Arch arch_cohere2_moe() {
  return {
      .model_types = {"cohere2_moe"},
      .gguf = {"cohere2moe"},
      .reference = "transformers Cohere2MoeForCausalLM",
      .build = build,
      .weights = weights,
      .tiny = R"({"model_type": "cohere2_moe", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 64,
              "prefix_dense_intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "first_k_dense_replace": 1,
              "prefix_dense_sliding_window_pattern": 1, "sliding_window": 8, "sliding_window_pattern": 2,
              "attention_bias": true, "num_experts": 6, "num_experts_per_tok": 3, "num_shared_experts": 2,
              "expert_selection_fn": "sigmoid", "norm_topk_prob": true,
              "shared_expert_combination_strategy": "average", "logit_scale": 0.5, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
