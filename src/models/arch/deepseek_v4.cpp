// DeepSeek-V4: one key for all heads, seen inside a window and pooled behind it, several residual streams,
// experts whose choice follows from the token in the first layers. Reference: transformers
// DeepseekV4ForCausalLM.
#include <algorithm>
#include <cmath>

#include "models/kit.h"
#include "nn/fault.h"
#include "nn/pooled.h"
#include "nn/streams.h"

namespace mlxcel {

namespace {

constexpr const char* kWindow = "sliding_attention";
constexpr const char* kChosen = "compressed_sparse_attention";
constexpr const char* kEvery = "heavily_compressed_attention";

/// Each layer's kind: listed, or as runs per entry (0, 4, 128), or the publisher's pattern.
std::vector<std::string> kinds(const Config& c, int layers) {
  auto listed = listed_kinds(c, "layer_types", layers, {kWindow, kChosen, kEvery});
  if (!listed.empty()) return listed;
  const auto ratios = c.get("compress_ratios", std::vector<int>{});
  if (!ratios.empty() && static_cast<int>(ratios.size()) < layers)
    fail(ErrorKind::bad_checkpoint, "{}: compress_ratios: expected {} entries, found {}", c.where(), layers,
         ratios.size());
  for (int i = 0; i < layers; ++i) {
    const int ratio = ratios.empty() ? (i < 2 || i % 2 == 0 ? 128 : 4) : ratios[static_cast<size_t>(i)];
    if (ratio != 0 && ratio != 4 && ratio != 128)
      fail(ErrorKind::unsupported, "{}: compress_ratios: expected 0, 4 or 128, found {}", c.where(), ratio);
    listed.emplace_back(ratio == 0 ? kWindow : ratio == 4 ? kChosen : kEvery);
  }
  return listed;
}

int run_of(const Config& c, const std::string& kind) {
  if (kind == kWindow) return 0;
  const bool chosen = kind == kChosen;
  const char* older = chosen ? "compress_rate_csa" : "compress_rate_hca";
  if (c.has(older)) return c.integer(older, 2, 1 << 16);
  return c.child("compress_rates").integer(kind, 2, 1 << 16, chosen ? 4 : 128);
}

/// Those of pooled layers ("compress") are scaled; their yarn leaves the values as long as they are.
Rope rope(const Config& c, const Dims& d, int rotated, bool pooled) {
  const float part = static_cast<float>(rotated) / static_cast<float>(d.head_dim);
  const Config blocks = c.child("rope_parameters");
  for (const Config& block :
       {blocks, blocks.child("main"), blocks.child("compress"), c.child("rope_scaling")})
    if (factor(block, "attention_factor") != 1.0f)
      fail(ErrorKind::unsupported, "{}: attention_factor {}: expected 1", block.where(),
           factor(block, "attention_factor"));
  if (!blocks.child("main").empty())
    return Rope::from(c, d, {.part = part, .interleaved = true, .layer_type = pooled ? "compress" : "main"});
  if (!pooled) {
    const float theta = factor(c, "rope_theta", 10000.0f);
    if (theta <= 1.0f)
      fail(ErrorKind::bad_checkpoint, "{}: rope_theta: expected more than 1, found {}", c.where(), theta);
    return Rope::plain(rotated, theta, true);
  }
  return Rope::from(
      c, d, {.theta = 160000.0f, .part = part, .interleaved = true, .theta_key = "compress_rope_theta"});
}

PooledOptions attention(const Config& c, const Dims& d, const std::string& kind, float eps) {
  const int rotated =
      c.integer("qk_rope_head_dim", 2, d.head_dim,
                static_cast<int>(static_cast<float>(d.head_dim) * c.get("partial_rotary_factor", 0.125f)));
  PooledOptions o{.hidden = d.hidden,
                  .heads = d.heads,
                  .head_dim = d.head_dim,
                  .q_rank = c.integer("q_lora_rank", 1, kMaxWidth, 1024),
                  .window = c.integer("sliding_window", 1, kMaxPositions, 128),
                  .groups = c.integer("o_groups", 1, d.heads, 8),
                  .rank = c.integer("o_lora_rank", 1, kMaxWidth, 1024),
                  .eps = eps,
                  .rope = rope(c, d, rotated, kind != kWindow),
                  .run = run_of(c, kind)};
  if (rotated % 2 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: qk_rope_head_dim {}: expected an even number", c.where(), rotated);
  if (d.heads % o.groups != 0)
    fail(ErrorKind::bad_checkpoint, "{}: num_attention_heads {}: expected a multiple of o_groups {}",
         c.where(), d.heads, o.groups);
  if (kind != kChosen) return o;
  o.chosen = PoolIndexer{.heads = c.integer("index_n_heads", 1, 4096, 64),
                         .head_dim = c.integer("index_head_dim", 2, 8192, 128),
                         .keep = c.integer("index_topk", 1, kMaxPositions, 512)};
  if (o.chosen->head_dim < rotated)
    fail(ErrorKind::bad_checkpoint,
         "{}: index_head_dim {}: expected at least the {} entries that are rotated", c.where(),
         o.chosen->head_dim, rotated);
  return o;
}

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

/// Experts by a table of token ids; their weights are scores all the same.
class TokenChoice {
 public:
  TokenChoice(const Weights& w, int hidden, int vocab, const MoeOptions& moe)
      : gate_(w.linear("gate", moe.experts, hidden, Bias::none)),
        table_(w.integers("gate.tid2eid", {vocab, moe.per_token}, moe.experts)),
        moe_(moe) {}

  std::pair<array, array> operator()(const array& x, const Step& step) const {
    const array logits = gate_(x);
    const array scores = moe_.scoring == Scoring::sigmoid ? kernels::activate(logits, Activation::sigmoid)
                         : moe_.scoring == Scoring::softmax
                             ? mx::softmax(logits, std::vector<int>{-1}, /*precise=*/true)
                             : mx::sqrt(kernels::activate(logits, Activation::softplus));
    const array chosen = mx::take(
        table_, fault("experts of tokens ignored") ? mx::zeros_like(step.tokens()) : step.tokens(), 0);
    const array own = mx::take_along_axis(scores, chosen, -1);
    const array sum = mx::add(mx::sum(own, -1, /*keepdims=*/true), array(moe_.renorm_eps));
    return {chosen, mx::multiply(mx::divide(own, sum), array(moe_.scale))};
  }

 private:
  Linear gate_;
  array table_;
  MoeOptions moe_;
};

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
  const auto kind = kinds(c, d.layers);
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
        .attention = PooledAttention(layer / "self_attn", attention(c, d, kind[static_cast<size_t>(i)], eps)),
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
