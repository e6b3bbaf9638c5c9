// LongCat-Flash: two attention and MLP pairs a layer; the experts read beside the first MLP and their answer
// is added at the layer's end. Some experts give their input back. Reference: mlx-lm longcat_flash.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

struct Pair {
  Norm mixer_norm;
  Mla mixer;
  Norm ffn_norm;
  GatedMlp ffn;
};

struct Dual {
  Pair first, second;
  SparseMoe experts;

  array operator()(const array& h, Step& step) const {
    const array a = first.mixer(first.mixer_norm(h), step, h);
    const array read = first.ffn_norm(a);
    const array b = first.ffn(read, a);
    const array c = second.mixer(second.mixer_norm(b), step, b);
    return second.ffn(second.ffn_norm(c), experts(read, c));
  }
};

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("n_routed_experts", 1, 4096);
  moe.zero_experts = c.integer("zero_expert_num", 0, 4096, 0);
  moe.per_token = c.integer("moe_topk", 1, moe.experts + moe.zero_experts);
  moe.width = c.integer("expert_ffn_hidden_size", 1, kMaxWidth);
  moe.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  moe.renormalize = c.get("norm_topk_prob", false);
  moe.renorm_eps = 1e-20f;
  moe.scale = c.get("routed_scaling_factor", 1.0f);
  moe.router = "router.classifier";
  moe.router_bias = bias_if(c.get("router_bias", false));
  moe.correction = "router.e_score_correction_bias";
  moe.bank = "switch_mlp";
  if (const auto kind = c.get<std::string>("zero_expert_type", "identity"); kind != "identity")
    fail(ErrorKind::unsupported, "{}: zero_expert_type \"{}\": expected identity", c.where(), kind);
  return moe;
}

Dims dims(const Config& c) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("hidden_size", 1, kMaxWidth);
  d.layers = c.integer("num_layers", 1, kMaxLayers);
  d.heads = c.integer("num_attention_heads", 1, 4096);
  d.max_positions = c.integer("max_position_embeddings", 0, kMaxPositions, 0);
  return d;
}

MlaOptions attention(const Config& c, const Dims& d) {
  auto mla = MlaOptions::from(c, d);
  const auto root = [&](int rank) {
    return std::sqrt(static_cast<float>(d.hidden) / static_cast<float>(rank));
  };
  if (mla.q_rank > 0 && c.get("mla_scale_q_lora", true)) mla.q_factor = root(mla.q_rank);
  if (c.get("mla_scale_kv_lora", true)) mla.kv_factor = root(mla.kv_rank);
  return mla;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto moe = experts(c);
  const auto mla = attention(c, d);
  const int width = c.integer("ffn_hidden_size", 1, kMaxWidth);
  const auto pair = [&](const Weights& layer, const std::string& i) {
    return Pair{.mixer_norm = layer.rms_norm("input_layernorm." + i, d.hidden, eps),
                .mixer = Mla(layer / "self_attn" / i, mla),
                .ffn_norm = layer.rms_norm("post_attention_layernorm." + i, d.hidden, eps),
                .ffn = GatedMlp(layer / "mlps" / i, d.hidden, width, moe.activation)};
  };

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(Dual{.first = pair(layer, "0"),
                   .second = pair(layer, "1"),
                   .experts = SparseMoe(layer / "mlp", d.hidden, moe)});
  model.finish(w.rms_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  return model;
}

std::vector<Rule> rules(const Config& c, const Source&) {
  const auto mla = attention(c, dims(c));
  return std::vector<Rule>{drop("model.mtp*")} + stack_experts() +
         heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
}

}  // namespace

Arch arch_longcat_flash() {
  return {
      .model_types = {"longcat_flash"},
      .gguf = {},
      .reference = "mlx-lm longcat_flash",
      .build = build,
      .weights = rules,
      .tiny = R"({"model_type": "longcat_flash", "vocab_size": 256, "hidden_size": 64, "ffn_hidden_size": 192,
              "num_layers": 2, "num_attention_heads": 6, "q_lora_rank": 64, "kv_lora_rank": 64,
              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "n_routed_experts": 6,
              "zero_expert_num": 3, "moe_topk": 4, "expert_ffn_hidden_size": 64, "routed_scaling_factor": 3.0,
              "norm_topk_prob": false, "router_bias": true, "zero_expert_type": "identity",
              "mla_scale_q_lora": true, "mla_scale_kv_lora": true, "attention_bias": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
