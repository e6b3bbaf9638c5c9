#include "models/bailing.h"

#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c, const BailingForm& form) {
  auto moe = MoeOptions::grouped(c, form.groups, form.kept_groups);
  const auto scores = c.get<std::string>("score_function", form.scores);
  if (scores != "softmax" && scores != "sigmoid")
    fail(ErrorKind::unsupported, "{}: score_function \"{}\": expected softmax or sigmoid", c.where(), scores);
  moe.scoring = scores == "softmax" ? Scoring::softmax : Scoring::sigmoid;
  moe.correction = c.get("moe_router_enable_expert_bias", form.corrected) ? "gate.expert_bias" : "";
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

}  // namespace

Decoder bailing_decoder(const Config& c, const Weights& w, const BailingForm& form) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto moe = experts(c, form);
  float partial = form.part;
  if (c.has("rotary_dim"))
    partial = static_cast<float>(c.integer("rotary_dim", 2, d.head_dim)) / static_cast<float>(d.head_dim);
  const auto rope = Rope::from(c, d, {.part = partial});
  std::optional<HeadNormOptions> head_norm;
  if (c.get("use_qk_norm", form.corrected)) head_norm = HeadNormOptions{.eps = eps};

  Decoder model(d, w.embedding("model.word_embeddings", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                      .mixer = Attention(layer / "attention", d,
                                         {.rope = rope,
                                          .qk_norm = head_norm,
                                          .block = form.block,
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

std::vector<Rule> bailing_rules() {
  return std::vector<Rule>{rename("*.attention.query_layernorm.*", "*.attention.q_norm.*"),
                           rename("*.attention.key_layernorm.*", "*.attention.k_norm.*"),
                           rename("*.mlp.gate.gate_proj.*", "*.mlp.gate.*")} +
         stack_experts();
}

}  // namespace mlxcel
