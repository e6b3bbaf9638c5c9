#include "models/longcat.h"

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
  std::optional<NgramMix> opening;  // of the first layer

  array operator()(const array& words, Step& step) const {
    const array h = opening ? (*opening)(words, step) : words;
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

MlaOptions attention(const Config& c, const Dims& d) {
  auto mla = MlaOptions::from(c, d);
  const auto root = [&](int rank) {
    return std::sqrt(static_cast<float>(d.hidden) / static_cast<float>(rank));
  };
  if (mla.q_rank > 0 && c.get("mla_scale_q_lora", true)) mla.q_factor = root(mla.q_rank);
  if (c.get("mla_scale_kv_lora", true)) mla.kv_factor = root(mla.kv_rank);
  return mla;
}

}  // namespace

Dims longcat_dims(const Config& c) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("hidden_size", 1, kMaxWidth);
  d.layers = c.integer("num_layers", 1, kMaxLayers);
  d.heads = c.integer("num_attention_heads", 1, 4096);
  d.max_positions = c.integer("max_position_embeddings", 0, kMaxPositions, 0);
  return d;
}

Decoder longcat_decoder(const Config& c, const Weights& w, const char* embedding,
                        const std::optional<NgramMix>& ngrams) {
  const auto d = longcat_dims(c);
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

  Decoder model(d, w.embedding(embedding, d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(Dual{.first = pair(layer, "0"),
                   .second = pair(layer, "1"),
                   .experts = SparseMoe(layer / "mlp", d.hidden, moe),
                   .opening = i == 0 ? ngrams : std::nullopt});
  model.finish(
      w.rms_norm("model.norm", d.hidden, eps),
      make_head(w, "lm_head", embedding, model.embedding(), tie_if(c.get("tie_word_embeddings", false))));
  return model;
}

std::vector<Rule> longcat_rules(const Config& c) {
  const auto mla = attention(c, longcat_dims(c));
  return std::vector<Rule>{drop("model.mtp*")} + stack_experts() +
         heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
}

MtpArch longcat_mtp() {
  const auto build = [](const Config& c, const Weights& w) {
    const auto d = longcat_dims(c);
    const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
    const Weights own = w / "mtp";
    return deepseek_mtp(
        own, d.hidden, eps,
        {PreNorm{.mixer_norm = own.rms_norm("input_layernorm", d.hidden, eps),
                 .mixer = Mla(own / "self_attn", attention(c, d)),
                 .ffn_norm = own.rms_norm("post_attention_layernorm", d.hidden, eps),
                 .ffn = GatedMlp(own / "mlp", d.hidden, c.integer("ffn_hidden_size", 1, kMaxWidth),
                                 activation_from(c.get<std::string>("hidden_act", "silu")))}},
        "norm", true);
  };
  return {.build = build, .weights = [](const Config& c, const Source&) {
            const auto mla = attention(c, longcat_dims(c));
            return std::vector<Rule>{rename("model.mtp.norm.*", "mtp.norm.*"),
                                     rename("model.mtp.layers.0.enorm.m.*", "mtp.enorm.*"),
                                     rename("model.mtp.layers.0.hnorm.m.*", "mtp.hnorm.*"),
                                     rename("model.mtp.layers.0.transformer_layer.mlp.*", "mtp.mlp.*")} +
                   mtp_rules_of("model.mtp.layers.0.") +
                   heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
          }};
}

}  // namespace mlxcel
