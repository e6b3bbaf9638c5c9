// Ling and Ring: fused q, k, v; experts by softmax or sigmoid as the config says; a head whose columns are of
// length one. Reference: mlx-lm bailing_moe.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  auto moe = MoeOptions::grouped(c, 1, 1);
  const auto scores = c.get<std::string>("score_function", "softmax");
  if (scores != "softmax" && scores != "sigmoid")
    fail(ErrorKind::unsupported, "{}: score_function \"{}\": expected softmax or sigmoid", c.where(), scores);
  moe.scoring = scores == "softmax" ? Scoring::softmax : Scoring::sigmoid;
  moe.correction = c.get("moe_router_enable_expert_bias", false) ? "gate.expert_bias" : "";
  moe.renormalize = c.get("norm_topk_prob", true) && moe.per_token > 1;
  moe.router_bias = Bias::as_stored;
  moe.expert_bias = c.get("use_bias", false) ? Bias::required : Bias::none;
  const int shared = c.integer("moe_shared_expert_intermediate_size", 1, 1 << 16, moe.width);
  moe.shared.width =
      c.get("moe_router_enable_shared_expert", true) ? shared * c.integer("num_shared_experts", 0, 16, 1) : 0;
  return moe;
}

/// Head columns of length one, in the final norm's weight: both multiply the hidden state.
void divide_by_columns(const Weights& w, RmsNorm& norm) {
  const auto head = w.peek("lm_head.weight");
  if (!head || !norm.weight) return;
  const array values = to_float32(*head);
  const int rows = values.shape(0), columns = values.shape(1);
  std::vector<double> squares(static_cast<size_t>(columns), 0.0);
  const float* x = values.data<float>();
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < columns; ++i, ++x) squares[static_cast<size_t>(i)] += static_cast<double>(*x) * *x;
  std::vector<float> weight(norm.weight->data<float>(), norm.weight->data<float>() + columns);
  for (size_t i = 0; i < weight.size(); ++i)
    weight[i] = static_cast<float>(weight[i] / (std::sqrt(squares[i]) + 1e-7));
  norm.weight = array(weight.data(), {columns}, mx::float32);
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto moe = experts(c);
  float partial = 1.0f;
  if (c.has("rotary_dim"))
    partial = static_cast<float>(c.integer("rotary_dim", 2, d.head_dim)) / static_cast<float>(d.head_dim);
  const auto rope = Rope::from(c, d, {.part = partial});
  std::optional<HeadNormOptions> head_norm;
  if (c.get("use_qk_norm", false)) head_norm = HeadNormOptions{.eps = eps};

  Decoder model(d, w.embedding("model.word_embeddings", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                      .mixer = Attention(layer / "attention", d,
                                         {.rope = rope,
                                          .qk_norm = head_norm,
                                          .qkv_bias = bias_if(c.get("use_qkv_bias", false)),
                                          .out_bias = bias_if(c.get("use_bias", false)),
                                          .fused = "query_key_value",
                                          .out = "dense"}),
                      .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                      .ffn = sparse_or_dense(layer / "mlp", c, d.hidden, moe, is_sparse(c, i, d.layers))});
  auto norm = w.rms_norm("model.norm", d.hidden, eps);
  const bool tied = c.get("tie_word_embeddings", false);
  if (c.get("norm_head", false) && !tied) divide_by_columns(w, norm);
  model.finish(norm, make_head(w, "lm_head", "model.word_embeddings", model.embedding(), tie_if(tied)));
  return model;
}

}  // namespace

Arch arch_bailing_moe() {
  return {
      .model_types = {"bailing_moe"},
      .gguf = {"bailingmoe", "bailingmoe2"},
      .reference = "mlx-lm bailing_moe",
      .build = build,
      .weights = std::vector<Rule>{rename("*.attention.query_layernorm.*", "*.attention.q_norm.*"),
                                   rename("*.attention.key_layernorm.*", "*.attention.k_norm.*"),
                                   rename("*.mlp.gate.gate_proj.*", "*.mlp.gate.*")} +
                 stack_experts(),
      .tiny =
          R"({"model_type": "bailing_moe", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.5, "use_bias": false, "use_qkv_bias": true, "use_qk_norm": true,
              "first_k_dense_replace": 1, "num_experts": 8, "num_shared_experts": 1, "num_experts_per_tok": 3,
              "moe_intermediate_size": 64, "n_group": 4, "topk_group": 2, "norm_topk_prob": true,
              "score_function": "sigmoid", "moe_router_enable_expert_bias": true, "routed_scaling_factor": 2.5,
              "norm_head": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
