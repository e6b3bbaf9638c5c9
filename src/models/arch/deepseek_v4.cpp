// DeepSeek-V4: one key for all heads, seen inside a window and pooled behind it, several residual streams,
// experts whose choice follows from the token in the first layers. Reference: transformers
// DeepseekV4ForCausalLM.
#include "models/kit.h"
#include "nn/pooled_config.h"
#include "nn/streams.h"
#include "nn/token_choice.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  auto moe = MoeOptions::grouped(c);
  const auto scores = c.get<std::string>("scoring_func", "sqrtsoftplus");
  if (scores != "sqrtsoftplus" && scores != "sigmoid" && scores != "softmax")
    fail(ErrorKind::unsupported, "{}: scoring_func \"{}\": expected sqrtsoftplus, sigmoid or softmax",
         c.where(), scores);
  moe.scoring = scores == "sigmoid"   ? Scoring::sigmoid
                : scores == "softmax" ? Scoring::softmax
                                      : Scoring::sqrt_softplus;
  moe.scale = factor(c, "routed_scaling_factor", 1.5f);
  moe.clamp = ClampedGlu{.limit = factor(c, "swiglu_limit", 10.0f)};
  moe.shared.clamp = moe.clamp;
  return moe;
}

struct Layer {
  std::optional<int> spread;  // the first layer: how many streams begin
  StreamMix attention_streams, ffn_streams;
  RmsNorm norm, ffn_norm;
  PooledAttention attention;
  std::optional<TokenChoice> choice;
  SparseMoe moe;
  std::optional<StreamSum> sum;  // the last layer

  array operator()(const array& h, Step& step) const {
    const array in = spread ? spread_streams(h, *spread) : h;
    const array seen = attention_streams(in, [&](const array& x) { return attention(norm(x), step); });
    const array out = ffn_streams(seen, [&](const array& x) {
      const array read = ffn_norm(x);
      if (!choice) return moe(read);
      const auto [chosen, weights] = (*choice)(read, step);
      return moe.with(read, chosen, weights, std::nullopt);
    });
    return sum ? (*sum)(out) : out;
  }
};

std::vector<bool> by_token(const Config& c, int layers) {
  std::vector<bool> list;
  for (const auto& kind : listed_kinds(c, "mlp_layer_types", layers, {"hash_moe", "moe"}))
    list.push_back(kind == "hash_moe");
  const int first = c.integer("num_hash_layers", 0, kMaxLayers, 3);
  if (list.empty())
    for (int i = 0; i < layers; ++i) list.push_back(i < first);
  return list;
}

Decoder build(const Config& c, const Weights& w) {
  auto d = Dims::from(c, {.kv_heads = 1, .head_dim = 512});
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const StreamOptions streams{.count = c.integer("hc_mult", 1, 64, 4),
                              .hidden = d.hidden,
                              .rounds = c.integer("hc_sinkhorn_iters", 1, 1000, 20),
                              .eps = epsilon(c, "hc_eps", 1e-6f),
                              .norm_eps = eps};
  const auto moe = experts(c);
  const auto kind = pooled_kinds(c, d.layers);
  const auto hashed = by_token(c, d.layers);
  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers)) {
    const Weights mlp = layer / "mlp";
    auto own = moe;
    if (hashed[static_cast<size_t>(i)]) own.router = "";
    model.add(Layer{
        .spread = i == 0 ? std::optional(streams.count) : std::nullopt,
        .attention_streams = StreamMix(layer / "attn_hc", streams),
        .ffn_streams = StreamMix(layer / "ffn_hc", streams),
        .norm = layer.rms_norm("input_layernorm", d.hidden, eps),
        .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
        .attention =
            PooledAttention(layer / "self_attn", pooled_options(c, d, kind[static_cast<size_t>(i)], eps)),
        .choice = own.router.empty() ? std::optional(TokenChoice(mlp, d.hidden, d.vocab, moe)) : std::nullopt,
        .moe = SparseMoe(mlp, d.hidden, own),
        .sum = i == d.layers - 1 ? std::optional(StreamSum(w / "model.hc_head", streams)) : std::nullopt});
  }
  model.finish(w.rms_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(), tied(c, false)));
  return model;
}

std::vector<Rule> weights(const Config& c, const Source&) {
  const int heads = c.integer("num_attention_heads", 1, kMaxHeads);
  std::vector<Rule> rules = {drop("mtp.*"),
                             drop("model.mtp.*"),
                             rename("embed.*", "model.embed_tokens.*"),
                             rename("head.*", "lm_head.*"),
                             rename("norm.weight", "model.norm.weight"),
                             rename("hc_head_*", "model.hc_head.hc_*"),
                             rename("layers.*", "model.layers.*"),
                             rename("*.attn.*", "*.self_attn.*"),
                             rename("*.ffn.*", "*.mlp.*"),
                             rename("*.attn_norm.weight", "*.input_layernorm.weight"),
                             rename("*.ffn_norm.weight", "*.post_attention_layernorm.weight"),
                             rename("*.self_attn.attn_sink", "*.self_attn.sinks"),
                             rename("*.self_attn.q_norm.weight", "*.self_attn.q_a_norm.weight"),
                             rename("*.self_attn.norm.weight", "*.self_attn.kv_norm.weight"),
                             rename("*.self_attn.indexer.compressor.*", "*.self_attn.compressor.indexer.*"),
                             rename("*.self_attn.indexer.*", "*.self_attn.compressor.indexer.*"),
                             rename("*.indexer.scorer.weights_proj.*", "*.indexer.weights_proj.*"),
                             rename("*.compressor.norm.weight", "*.compressor.kv_norm.weight"),
                             rename("*.indexer.norm.weight", "*.indexer.kv_norm.weight"),
                             rename("*.ape", "*.position_bias"),
                             rename("*.mlp.gate.bias", "*.mlp.gate.e_score_correction_bias"),
                             rename("*.hc_head.hc_fn", "*.hc_head.hc_fn.weight")};
  for (const char* half : {"attn", "ffn"}) {
    const std::string from = std::string("*.hc_") + half + "_", to = std::string("*.") + half + "_hc.";
    for (const char* leaf : {"fn", "base", "scale"}) rules.push_back(rename(from + leaf, to + leaf));
  }
  rules.push_back(rename("*_hc.fn", "*_hc.fn.weight"));
  const std::pair<const char*, const char*> names[] = {{"wq_a", "q_a_proj"}, {"wq_b", "q_b_proj"},
                                                       {"wkv", "kv_proj"},   {"wgate", "gate_proj"},
                                                       {"wo_a", "o_a_proj"}, {"wo_b", "o_b_proj"}};
  for (const auto& [from, to] : names)
    rules.push_back(rename(std::string("*.") + from + ".weight", std::string("*.") + to + ".weight"));
  const std::pair<const char*, const char*> thirds[] = {
      {"w1", "gate_proj"}, {"w2", "down_proj"}, {"w3", "up_proj"}};
  for (const auto& [from, to] : thirds) {
    const std::string own = std::string(from) + ".weight", ours = std::string(to) + ".weight";
    rules.push_back(rename("*.shared_experts." + own, "*.shared_experts." + ours));
    rules.push_back(stack("*.mlp.experts.#." + own, "*.mlp.switch_mlp." + ours));
  }
  return rules + stack_experts() +
         std::vector<Rule>{unflatten("*.o_a_proj.weight", c.integer("o_groups", 1, heads, 8)),
                           rename("*.o_a_proj.*", "*.o_groups.*")};
}

}  // namespace

Arch arch_deepseek_v4() {
  return {
      .model_types = {"deepseek_v4"},
      .gguf = {"deepseek4"},
      .reference = "transformers DeepseekV4ForCausalLM",
      .build = build,
      .weights = weights,
      .tiny =
          R"({"model_type": "deepseek_v4", "vocab_size": 256, "hidden_size": 64, "moe_intermediate_size": 64,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64,
              "q_lora_rank": 64, "qk_rope_head_dim": 16, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "compress_rope_theta": 2000.0,
              "rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                               "original_max_position_embeddings": 64, "attention_factor": 1.0},
              "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                              "compressed_sparse_attention"],
              "compress_rates": {"compressed_sparse_attention": 3, "heavily_compressed_attention": 5},
              "sliding_window": 6, "o_groups": 2, "o_lora_rank": 64, "index_n_heads": 16, "index_head_dim": 32,
              "index_topk": 3, "hc_mult": 3, "hc_sinkhorn_iters": 3, "hc_eps": 1e-5, "num_hash_layers": 1,
              "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "norm_topk_prob": true,
              "scoring_func": "sqrtsoftplus", "routed_scaling_factor": 1.5, "swiglu_limit": 0.6,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
