// Inkling's text side: no rotation but a learned weight for each distance, short convolutions behind keys,
// values, attention and feed-forward, shared experts that share the routed ones' softmax. Reference:
// transformers InklingForCausalLM.
#include <algorithm>

#include "models/kit.h"
#include "nn/distance_attention.h"
#include "nn/sink_moe.h"

namespace mlxcel {

namespace {

struct ScaledMlp {
  GatedMlp mlp;
  array scale;
  array operator()(const array& x) const { return mx::multiply(mlp(x), scale); }
};

/// h += smear(mixer(norm(h))); h += smear(ffn(norm(h)))
struct Layer {
  Norm mixer_norm;
  DistanceAttention attention;
  Smear after_attention;
  Norm ffn_norm;
  Ffn ffn;
  Smear after_ffn;
  array operator()(const array& h, Step& step) const {
    const array a = mx::add(h, after_attention(attention(mixer_norm(h), step), step));
    return mx::add(a, after_ffn(ffn(ffn_norm(a)), step));
  }
};

std::vector<bool> sliding_layers(const Config& c, int layers) {
  std::vector<bool> sliding;
  for (const auto& kind : listed_kinds(c, "layer_types", layers, {"hybrid", "hybrid_sliding"}))
    sliding.push_back(kind == "hybrid_sliding");
  if (!sliding.empty()) return sliding;
  const auto listed = c.get("local_layer_ids", std::vector<int>{});
  for (int i = 0; i < layers; ++i)
    sliding.push_back(listed.empty() ? (i + 1) % 6 != 0
                                     : std::find(listed.begin(), listed.end(), i) != listed.end());
  return sliding;
}

/// Older files call the experts' width intermediate_size and the dense layers' dense_intermediate_size.
std::pair<int, int> widths(const Config& c) {
  const bool older = c.has("dense_intermediate_size") && !c.is_null("dense_intermediate_size");
  return {c.integer(older ? "dense_intermediate_size" : "intermediate_size", 1, kMaxWidth),
          c.integer(older ? "intermediate_size" : "moe_intermediate_size", 1, kMaxWidth)};
}

Decoder build(const Config& outer, const Weights& w) {
  const Config c = text_config(outer);
  if (outer.has("vision_config"))
    w.warn("the text side alone is served: the vision and audio towers are left out, images are refused");
  auto d = Dims::from(c);
  const int rows = d.vocab;
  if (c.has("unpadded_vocab_size") && !c.is_null("unpadded_vocab_size"))
    d.vocab = c.integer("unpadded_vocab_size", 1, rows);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto norm = rms_norms(d.hidden, eps);
  DistanceOptions full{
      .hidden = d.hidden,
      .heads = d.heads,
      .kv_heads = d.kv_heads,
      .head_dim = d.head_dim,
      .reach = c.integer("rel_extent", 1, kMaxPositions, 1024),
      .inner = c.integer("d_rel", 1, kMaxWidth, 16),
      .taps = c.integer(c.has("sconv_kernel_size") ? "sconv_kernel_size" : "conv_kernel_size", 2, 16, 4),
      .eps = eps};
  DistanceOptions local = full;
  full.floor = c.is_null("log_scaling_n_floor") ? 0 : c.integer("log_scaling_n_floor", 0, kMaxPositions, 0);
  full.sharpening = factor(c, "log_scaling_alpha", 0.1f);
  local.heads = c.integer("swa_num_attention_heads", 1, kMaxHeads, 64);
  local.kv_heads = c.integer("swa_num_key_value_heads", 1, local.heads, 16);
  local.head_dim = c.integer("swa_head_dim", 1, 8192, 128);
  local.window = local.reach = c.integer("sliding_window_size", 1, kMaxPositions, 512);
  if (local.heads % local.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: swa_num_attention_heads {}: expected a multiple of swa_num_key_value_heads {}", c.where(),
         local.heads, local.kv_heads);
  const auto [dense_width, expert_width] = widths(c);
  const int experts = c.integer("n_routed_experts", 1, 4096);
  const auto activation = activation_from(c, "hidden_act", "silu");
  const SinkMoeOptions moe{.hidden = d.hidden,
                           .width = expert_width,
                           .experts = experts,
                           .shared = c.integer("n_shared_experts", 1, 1024, 2),
                           .per_token = c.integer("num_experts_per_tok", 1, experts, 6),
                           .scale = factor(c, "route_scale", 8.0f),
                           .activation = activation};
  const auto sliding = sliding_layers(c, d.layers);
  const auto ffn = [&](int i, const Weights& at) {
    if (is_sparse(c, i, d.layers, c.integer("dense_mlp_idx", 0, kMaxLayers, 0))) return Ffn(SinkMoe(at, moe));
    return Ffn(ScaledMlp{GatedMlp(at, d.hidden, dense_width, activation, Bias::none),
                         at.tensor("global_scale", {1})});
  };

  Decoder model(d, w.embedding("model.embed_tokens", rows, d.hidden));
  model.embedding_norm(norm(w, "model.embed_tokens.embed_norm"));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers)) {
    model.add(Layer{
        .mixer_norm = norm(layer, "input_layernorm"),
        .attention = DistanceAttention(layer / "self_attn", sliding[static_cast<size_t>(i)] ? local : full),
        .after_attention = Smear(layer / "attn_sconv", d.hidden, full.taps),
        .ffn_norm = norm(layer, "post_attention_layernorm"),
        .ffn = ffn(i, layer / "mlp"),
        .after_ffn = Smear(layer / "mlp_sconv", d.hidden, full.taps)});
  }
  model.finish(norm(w, "model.norm"), w.linear("lm_head", d.vocab, d.hidden, Bias::none));
  model.logit_scale(1.0f / factor(c, "logits_mup_width_multiplier", 24.0f));
  return model;
}

/// As published: gate and up in turn under other names; as transformers saves: one after another.
std::vector<Rule> rules(const Config& outer, const Source& source) {
  const Config c = text_config(outer);
  auto list = text_side_rules() +
              std::vector<Rule>{drop("model.mtp.*"), drop("model.visual.*"), drop("model.audio.*")};
  const auto halves = [&](int axis, const char* both, const std::string& at, const char* leaf) {
    list.push_back(deal(axis, both, {at + ".gate_proj" + leaf, at + ".up_proj" + leaf}));
  };
  halves(-2, "*.mlp.experts.w13_weight", "*.mlp.experts", ".weight");
  halves(-2, "*.shared_experts.shared_w13_weight", "*.shared_experts", ".weight");
  halves(0, "*.mlp.w13_dn.weight", "*.mlp", ".weight");
  list.push_back(split_axis(-2, "*.mlp.experts.gate_up_proj",
                            {"*.mlp.experts.gate_proj.weight", "*.mlp.experts.up_proj.weight"}));
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"model.llm.unembed.weight", "lm_head.weight"},
      {"model.llm.embed.weight", "model.embed_tokens.weight"},
      {"model.llm.embed_norm.weight", "model.embed_tokens.embed_norm.weight"},
      {"model.llm.*", "model.*"},
      {"*.mlp.experts.w2_weight", "*.mlp.experts.down_proj.weight"},
      {"*.mlp.experts.down_proj", "*.mlp.experts.down_proj.weight"},
      {"*.shared_experts.shared_w2_weight", "*.shared_experts.down_proj.weight"},
      {"*.shared_experts.gate_proj", "*.shared_experts.gate_proj.weight"},
      {"*.shared_experts.up_proj", "*.shared_experts.up_proj.weight"},
      {"*.shared_experts.down_proj", "*.shared_experts.down_proj.weight"},
      {"*.mlp.w2_md.weight", "*.mlp.down_proj.weight"},
      {"*.mlp.gate.bias", "*.mlp.gate.e_score_correction_bias"},
      {"*.attn.wq_du.weight", "*.self_attn.q_proj.weight"},
      {"*.attn.wk_dv.weight", "*.self_attn.k_proj.weight"},
      {"*.attn.wv_dv.weight", "*.self_attn.v_proj.weight"},
      {"*.attn.wr_du.weight", "*.self_attn.r_proj.weight"},
      {"*.attn.wo_ud.weight", "*.self_attn.o_proj.weight"},
      {"*.attn.k_sconv.weight", "*.self_attn.k_sconv.conv1d.weight"},
      {"*.attn.v_sconv.weight", "*.self_attn.v_sconv.conv1d.weight"},
      {"*.attn.*", "*.self_attn.*"},
      {"*.attn_sconv.weight", "*.attn_sconv.conv1d.weight"},
      {"*.mlp_sconv.weight", "*.mlp_sconv.conv1d.weight"},
      {"*.mlp_norm.weight", "*.post_attention_layernorm.weight"},
      {"*.attn_norm.weight", "*.input_layernorm.weight"}};
  for (const auto& [from, to] : kNames) list.push_back(rename(from, to));
  list.push_back(transpose("*.rel_logits_proj.proj"));
  list.push_back(rename("*.rel_logits_proj.proj", "*.rel_logits_proj.weight"));
  const int rows = c.integer("vocab_size", 1, kMaxVocab);
  const int used = c.is_null("unpadded_vocab_size") ? rows : c.integer("unpadded_vocab_size", 1, rows, rows);
  auto head = source.find("lm_head.weight");
  if (!head) head = source.find("model.llm.unembed.weight");
  if (used < rows && head && head->shape.front() == rows)
    list = list + std::vector<Rule>{
                      split("lm_head.weight", {"lm_head.weight", "lm_head.padding"}, {used, rows - used}),
                      drop("lm_head.padding")};
  return list;
}

}  // namespace

Arch arch_inkling() {
  return {
      .model_types = {"inkling_text", "inkling", "inkling_mm_model"},
      .gguf = {},
      .reference = "transformers InklingForCausalLM",
      .build = build,
      .weights = rules,
      .tiny =
          R"({"model_type": "inkling_text", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "swa_num_attention_heads": 6, "swa_num_key_value_heads": 3, "swa_head_dim": 32,
              "sliding_window_size": 8, "d_rel": 32, "rel_extent": 11, "log_scaling_n_floor": 6,
              "log_scaling_alpha": 0.5, "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding"],
              "mlp_layer_types": ["dense", "sparse", "sparse"], "moe_intermediate_size": 64, "n_routed_experts": 7,
              "n_shared_experts": 2, "num_experts_per_tok": 3, "route_scale": 2.5, "conv_kernel_size": 4,
              "logits_mup_width_multiplier": 2.0, "rms_norm_eps": 1e-6, "max_position_embeddings": 512})"};
}

}  // namespace mlxcel
