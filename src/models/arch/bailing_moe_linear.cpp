// Ring-linear and Ling-linear: linear attention whose memory fades at a fixed rate for each head and layer,
// softmax attention at the end of each group of layers, experts in groups. Reference: mlx-lm
// bailing_moe_linear.
#include <algorithm>

#include "models/kit.h"
#include "nn/linear_attention.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions o;
  o.experts = c.integer("num_experts", 1, 4096);
  o.per_token = c.integer("num_experts_per_tok", 1, o.experts);
  o.width = c.integer("moe_intermediate_size", 1, kMaxWidth);
  o.bank = "switch_mlp";
  const auto score = c.get<std::string>("score_function", "softmax");
  if (score != "softmax" && score != "sigmoid")
    fail(ErrorKind::unsupported, "{}: score_function \"{}\" is not supported: expected softmax or sigmoid",
         c.where(), score);
  o.scoring = score == "sigmoid" ? Scoring::sigmoid : Scoring::softmax;
  if (c.get("moe_router_enable_expert_bias", false)) o.correction = "gate.expert_bias";
  o.renormalize = o.per_token > 1 && c.get("norm_topk_prob", true);
  o.scale = c.get("routed_scaling_factor", 1.0f);
  o.groups = c.integer("n_group", 1, o.experts, 1);
  o.kept_groups = c.integer("topk_group", 1, kMaxWidth, o.groups);
  o.kept_groups = std::min(o.kept_groups, o.groups);
  const int shared = c.integer("moe_shared_expert_intermediate_size", 1, kMaxWidth, o.width);
  if (c.get("moe_router_enable_shared_expert", true))
    o.shared.width = shared * c.integer("num_shared_experts", 0, 64, 0);
  return o;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  if (c.get("norm_head", false))
    fail(ErrorKind::unsupported, "{}: norm_head is not supported here: expected false", c.where());
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const Bias bias = bias_if(c.get("use_bias", false)), qkv_bias = bias_if(c.get("use_qkv_bias", false));
  const auto rope = Rope::from(c, d);
  std::optional<HeadNormOptions> qk_norm;
  if (c.get("use_qk_norm", false)) qk_norm = HeadNormOptions{.eps = eps};
  const int group = c.integer("layer_group_size", 1, kMaxLayers),
            width = c.integer("intermediate_size", 1, kMaxWidth);
  const int dense = c.integer("first_k_dense_replace", 0, kMaxLayers, 0);
  LinearAttentionOptions linear{.rope = rope,
                                .qk_norm = qk_norm,
                                .eps = eps,
                                .groups = c.integer("group_norm_size", 1, d.heads * d.head_dim, 1),
                                .qkv_bias = qkv_bias,
                                .bias = bias};
  if (d.heads * d.head_dim % linear.groups != 0)
    fail(ErrorKind::bad_checkpoint, "{}: group_norm_size {}: expected a divisor of {}", c.where(),
         linear.groups, d.heads * d.head_dim);
  const auto mixer = [&](int i, const Weights& scope) {
    if ((i + 1) % group == 0 || i >= d.layers / group * group)
      return Mixer(Attention(scope, d,
                             {.rope = rope,
                              .qk_norm = qk_norm,
                              .qkv_bias = qkv_bias,
                              .out_bias = bias,
                              .fused = "query_key_value",
                              .out = "dense"}));
    LinearAttentionOptions own = linear;
    own.slopes = fading_slopes(d.heads, i, d.layers);
    return Mixer(LinearAttention(scope, d, own));
  };
  const auto ffn = [&](int i, const Weights& scope) {
    if (i >= dense) return Ffn(SparseMoe(scope, d.hidden, experts(c)));
    return Ffn(GatedMlp(scope, d.hidden, width, Activation::silu, bias));
  };

  Decoder model(d, w.embedding("model.word_embeddings", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                      .mixer = mixer(i, layer / "attention"),
                      .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                      .ffn = ffn(i, layer / "mlp")});
  model.finish(w.rms_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.word_embeddings", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  return model;
}

}  // namespace

Arch arch_bailing_moe_linear() {
  return {
      .model_types = {"bailing_moe_linear"},
      .reference = "mlx-lm bailing_moe_linear",
      .build = build,
      .weights = {rename("*.mlp.gate.gate_proj.*", "*.mlp.gate.*"),
                  rename("*.attention.query_layernorm.*", "*.attention.q_norm.*"),
                  rename("*.attention.key_layernorm.*", "*.attention.k_norm.*"),
                  stack("*.mlp.experts.#.*", "*.mlp.switch_mlp.*")},
      .tiny =
          R"({"model_type": "bailing_moe_linear", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.5, "use_bias": false, "use_qkv_bias": true, "use_qk_norm": true,
              "layer_group_size": 3, "group_norm_size": 3, "first_k_dense_replace": 1, "num_experts": 8,
              "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": true,
              "score_function": "sigmoid", "moe_router_enable_expert_bias": true, "routed_scaling_factor": 1.5,
              "n_group": 2, "topk_group": 1, "num_shared_experts": 1, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
