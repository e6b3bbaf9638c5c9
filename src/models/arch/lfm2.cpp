// LFM2: gated short convolutions with attention among them, dense or with sigmoid-routed experts.
// Reference: transformers Lfm2ForCausalLM, Lfm2MoeForCausalLM.
#include <cmath>

#include "models/kit.h"
#include "models/wrapper.h"
#include "nn/short_conv.h"

namespace mlxcel {

namespace {

/// The width as published is that of a plain MLP; the gated one is made of two thirds of it.
int gated_width(const Config& c) {
  double width = c.has("block_ff_dim") ? c.integer("block_ff_dim", 1, kMaxWidth)
                                       : c.integer("intermediate_size", 1, kMaxWidth, 12288);
  if (!c.get("block_auto_adjust_ff_dim", true)) return static_cast<int>(width);
  width = std::floor(2.0 * width / 3.0);
  const float factor = c.get("block_ffn_dim_multiplier", 1.0f);
  if (!(factor > 0.0f && factor <= 64.0f))
    fail(ErrorKind::bad_checkpoint,
         "{}: block_ffn_dim_multiplier: expected more than 0 and at most 64, found {}", c.where(), factor);
  const int multiple = c.integer("block_multiple_of", 1, kMaxWidth, 256);
  return static_cast<int>(std::ceil(std::floor(factor * width) / multiple)) * multiple;
}

std::vector<bool> attention_layers(const Config& c, int layers) {
  std::vector<bool> list(static_cast<size_t>(layers), !c.has("layer_types") && !c.has("full_attn_idxs"));
  if (const auto kinds = listed_kinds(c, "layer_types", layers, {"full_attention", "conv"}); !kinds.empty())
    for (size_t i = 0; i < list.size(); ++i) list[i] = kinds[i] == "full_attention";
  else
    for (const int i : c.get<std::vector<int>>("full_attn_idxs", {}))
      if (i < layers) list[static_cast<size_t>(i)] = true;
  return list;
}

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096, 32);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 4);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth, 1792);
  moe.bank = "switch_mlp";
  moe.scoring = Scoring::sigmoid;
  if (c.get("use_expert_bias", true)) moe.correction = "expert_bias";
  moe.renormalize = c.get("norm_topk_prob", true);
  moe.renorm_eps = 1e-6f;
  moe.scale = c.get("routed_scaling_factor", 1.0f);
  return moe;
}

Decoder build(const Config& whole, const Weights& w) {
  const Config c = text_config(whole);
  const auto d = Dims::from(c, {.kv_heads = 8});
  const float eps = epsilon(c, "norm_eps", 1e-5f);
  const bool sparse = c.has("num_dense_layers") || c.has("moe_intermediate_size");
  const int dense = sparse ? c.integer("num_dense_layers", 0, kMaxLayers, 2) : d.layers;
  const int width = sparse ? c.integer("intermediate_size", 1, kMaxWidth, 7168) : gated_width(c);
  const int taps = c.integer("conv_L_cache", 2, 16, 3);
  const Bias conv_bias = c.get("conv_bias", false) ? Bias::required : Bias::none;
  const auto attends = attention_layers(c, d.layers);
  const auto rope = Rope::from(c, d, {.theta = 1000000.0f});
  const auto mixer = [&](int i, const Weights& layer) {
    if (!attends[static_cast<size_t>(i)]) return Mixer(ShortConv(layer / "conv", d.hidden, taps, conv_bias));
    return Mixer(Attention(layer / "self_attn", d,
                           {.rope = rope,
                            .qk_norm = HeadNormOptions{.eps = eps},
                            .qkv_bias = Bias::none,
                            .out_bias = Bias::none,
                            .out = "out_proj"}));
  };
  const auto ffn = [&](int i, const Weights& scope) {
    if (i >= dense) return Ffn(SparseMoe(scope, d.hidden, experts(c)));
    return Ffn(GatedMlp(scope, d.hidden, width, Activation::silu, Bias::none));
  };
  // Older configs say tie_embedding.
  const bool tied = c.get("tie_embedding", c.get("tie_word_embeddings", true));

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm("operator_norm", d.hidden, eps),
                      .mixer = mixer(i, layer),
                      .ffn_norm = layer.rms_norm("ffn_norm", d.hidden, eps),
                      .ffn = ffn(i, layer / "feed_forward")});
  model.finish(w.rms_norm("model.embedding_norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(), tie_if(tied)));
  return model;
}

std::vector<Rule> weights(const Config&, const Source&) {
  auto rules = text_side_rules();
  for (const auto& [from, to] : {std::pair("*_layernorm.weight", "*_norm.weight"),
                                 {"*.w1.*", "*.gate_proj.*"},
                                 {"*.w2.*", "*.down_proj.*"},
                                 {"*.w3.*", "*.up_proj.*"}})
    rules.push_back(rename(from, to));
  rules.push_back(stack("*.feed_forward.experts.#.*", "*.feed_forward.switch_mlp.*"));
  return rules;
}

}  // namespace

Arch arch_lfm2() {
  return {
      .model_types = {"lfm2", "lfm2_moe", "lfm2-vl", "lfm2_vl"},
      .gguf = {"lfm2", "lfm2moe"},
      .reference = "transformers Lfm2ForCausalLM",
      .build = build,
      .weights = weights,
      .tiny = R"({"model_type": "lfm2_moe", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "norm_eps": 1e-5,
              "max_position_embeddings": 512, "rope_theta": 10000.0, "conv_bias": true, "conv_L_cache": 3,
              "layer_types": ["conv", "full_attention", "conv", "full_attention"], "num_dense_layers": 2,
              "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "use_expert_bias": true,
              "norm_topk_prob": true, "routed_scaling_factor": 1.5, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
