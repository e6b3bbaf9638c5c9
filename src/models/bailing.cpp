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

AttentionOptions attention(const Config& c, const Dims& d, float eps, const BailingForm& form) {
  float partial = form.part;
  if (c.has("rotary_dim"))
    partial = static_cast<float>(c.integer("rotary_dim", 2, d.head_dim)) / static_cast<float>(d.head_dim);
  std::optional<HeadNormOptions> head_norm;
  if (c.get("use_qk_norm", form.corrected)) head_norm = HeadNormOptions{.eps = eps};
  return {.rope = Rope::from(c, d, {.part = partial}),
          .qk_norm = head_norm,
          .block = form.block,
          .qkv_bias = bias_if(c.get("use_qkv_bias", false)),
          .out_bias = bias_if(c.get("use_bias", false)),
          .fused = "query_key_value",
          .out = "dense"};
}

PreNorm layer_of(const Weights& layer, const Dims& d, float eps, const AttentionOptions& options, Ffn ffn) {
  return {.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
          .mixer = Attention(layer / "attention", d, options),
          .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
          .ffn = std::move(ffn)};
}

}  // namespace

Decoder bailing_decoder(const Config& c, const Weights& w, const BailingForm& form) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto moe = experts(c, form);
  auto options = attention(c, d, eps, form);
  // GGUF files of the first generation.
  if (w.has("model.layers.0.attention.q_proj.weight")) options.fused = "";

  Decoder model(d, w.embedding("model.word_embeddings", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(layer_of(layer, d, eps, options,
                       sparse_or_dense(layer / "mlp", c, d.hidden, moe, is_sparse(c, i, d.layers))));
  auto norm = w.rms_norm("model.norm", d.hidden, eps);
  const bool tied = c.get("tie_word_embeddings", false);
  if (c.get("norm_head", false) && !tied) divide_by_columns(w, norm);
  model.finish(norm, make_head(w, "lm_head", "model.word_embeddings", model.embedding(), tie_if(tied)));
  return model;
}

namespace {

std::vector<Rule> layer_rules() {
  return std::vector<Rule>{rename("*.attention.query_layernorm.*", "*.attention.q_norm.*"),
                           rename("*.attention.key_layernorm.*", "*.attention.k_norm.*"),
                           rename("*.mlp.gate.gate_proj.*", "*.mlp.gate.*")} +
         stack_experts();
}

int layers_of(const Config& c) { return c.integer("num_hidden_layers", 1, kMaxLayers); }

}  // namespace

std::vector<Rule> bailing_rules(const Config& c) {
  return drop_layers("model.layers", layers_of(c), c.integer("num_nextn_predict_layers", 0, 64, 0)) +
         layer_rules();
}

MtpArch bailing_mtp(const BailingForm& form) {
  const auto build = [form](const Config& c, const Weights& w) {
    const auto d = Dims::from(c);
    const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
    const Weights own = w / "mtp";
    auto layer =
        layer_of(own, d, eps, attention(c, d, eps, form), SparseMoe(own / "mlp", d.hidden, experts(c, form)));
    return deepseek_mtp(own, d.hidden, eps, {std::move(layer)}, "final_layernorm", true);
  };
  return {.build = build, .weights = [](const Config& c, const Source&) {
            return mtp_layer_rules(layers_of(c)) + layer_rules();
          }};
}

}  // namespace mlxcel
