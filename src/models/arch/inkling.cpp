// Inkling's text side: no rotation but a learned weight for each distance, short convolutions behind keys,
// values, attention and feed-forward, shared experts that share the routed ones' softmax. Reference:
// transformers InklingForCausalLM.
#include <cmath>

#include "kernels/recurrent.h"
#include "models/kit.h"
#include "nn/expert_bank.h"
#include "nn/fault.h"
#include "state/attend.h"

namespace mlxcel {

namespace {

/// x plus a convolution of it over the row's last tokens.
class Smear {
 public:
  Smear(const Weights& w, int width, int taps)
      : weight_(w.tensor("conv1d.weight", {width, taps})),
        slot_(w.layout().add_recurrent({.name = "conv", .shape = {taps - 1, width}})) {}
  array operator()(const array& x, Step& step) const {
    const auto [mixed, state] = kernels::causal_conv(x, weight_, std::nullopt, step.recurrent(slot_),
                                                     step.offsets(), Activation::none);
    step.set_recurrent(slot_, state);
    return fault("earlier tokens ignored") ? x : mx::add(mixed, x);
  }

 private:
  array weight_;
  int slot_;
};

struct Kind {
  int heads, kv_heads, head_dim, window, reach;
  int floor;  // positions from here on sharpen the scores; 0: none do
  float sharpening;
};

/// Reads q_proj, k_proj, v_proj, r_proj, o_proj, the norms of q and k, their convolutions, rel_logits_proj.
class DistanceAttention {
 public:
  DistanceAttention(const Weights& w, const Kind& kind, int hidden, int inner, int taps, float eps)
      : k_(kind),
        inner_(inner),
        in_(w.fused({"q_proj", "k_proj", "v_proj", "r_proj"},
                    {kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim, kind.kv_heads * kind.head_dim,
                     kind.heads * inner},
                    hidden, Bias::none)),
        out_(w.linear("o_proj", hidden, kind.heads * kind.head_dim, Bias::none)),
        distances_(w.linear("rel_logits_proj", kind.reach, inner, Bias::none)),
        q_norm_(w.rms_norm("q_norm", kind.head_dim, eps)),
        k_norm_(w.rms_norm("k_norm", kind.head_dim, eps)),
        keys_(w / "k_sconv", kind.kv_heads * kind.head_dim, taps),
        values_(w / "v_sconv", kind.kv_heads * kind.head_dim, taps),
        slot_(w.layout().add_kv({.kv_heads = kind.kv_heads,
                                 .key_dim = kind.head_dim,
                                 .value_dim = kind.head_dim,
                                 .window = fault("window ignored") ? 0 : kind.window})) {}

  array operator()(const array& x, Step& step) const {
    const array all = in_(x);
    const int tokens = x.shape(0), q_width = k_.heads * k_.head_dim, kv_width = k_.kv_heads * k_.head_dim;
    const auto part = [&](int from, int width) { return mx::slice(all, {0, from}, {tokens, from + width}); };
    const auto heads = [&](const array& y, int count) { return mx::reshape(y, {tokens, count, -1}); };
    array q = q_norm_(heads(part(0, q_width), k_.heads));
    const array k = k_norm_(heads(keys_(part(q_width, kv_width), step), k_.kv_heads));
    const array v = heads(values_(part(q_width + kv_width, kv_width), step), k_.kv_heads);
    const array mix =
        mx::reshape(part(q_width + 2 * kv_width, k_.heads * inner_), {tokens * k_.heads, inner_});
    array bias = mx::reshape(distances_(mix), {tokens, k_.heads, k_.reach});
    if (k_.floor > 0 && !fault("query temperature dropped")) {
      const array sharper = sharpness(step);
      q = mx::multiply(q, sharper);
      bias = mx::multiply(bias, sharper);
    }
    AttendOptions options{.scale = 1.0f / static_cast<float>(k_.head_dim)};
    if (!fault("distances not weighed")) options.bias = bias;
    return out_(attend(q, k, v, step, slot_, options));
  }

 private:
  /// Of each token, [tokens, 1, 1]: computed on the host, so that a token's place in the step changes no bit.
  array sharpness(const Step& step) const {
    std::vector<float> factors;
    for (const StepRow& row : step.rows())
      for (int i = 0; i < row.count; ++i) {
        const float seen = static_cast<float>(row.position + i + 1) / static_cast<float>(k_.floor);
        factors.push_back(1.0f + k_.sharpening * std::log(std::max(seen, 1.0f)));
      }
    return array(factors.data(), {static_cast<int>(factors.size()), 1, 1}, mx::float32);
  }

  Kind k_;
  int inner_;
  Linear in_, out_, distances_;
  RmsNorm q_norm_, k_norm_;
  Smear keys_, values_;
  int slot_;
};

struct SinkOptions {
  int hidden, width, experts, shared, per_token;
  float scale;
  Activation activation;
};

/// Routed and shared experts, weighed by their sigmoids' shares of the sum.
class SinkMoe {
 public:
  SinkMoe(const Weights& w, const SinkOptions& options)
      : o_(options),
        router_(w.linear("gate", o_.experts + o_.shared, o_.hidden, Bias::none)),
        correction_(w.tensor("gate.e_score_correction_bias", {o_.experts})),
        scale_(w.tensor("gate.global_scale", {1})),
        routed_(w / "experts", {o_.experts, o_.hidden, o_.width, o_.activation}),
        shared_(w / "shared_experts", {o_.shared, o_.hidden, o_.width, o_.activation}) {}

  array operator()(const array& x) const {
    const int tokens = x.shape(0), all = o_.experts + o_.shared;
    const array score = kernels::activate(router_(x), Activation::sigmoid);
    const array own = mx::slice(score, {0, 0}, {tokens, o_.experts});
    const array sinks = mx::slice(score, {0, o_.experts}, {tokens, all});
    const array wanted = fault("correction bias dropped") ? own : mx::add(own, correction_);
    const array order = mx::argsort(mx::negative(wanted), -1);
    const array chosen = mx::astype(mx::slice(order, {0, 0}, {tokens, o_.per_token}), mx::int32);
    const array best = mx::take_along_axis(own, chosen, -1);
    const array sum = mx::sum(mx::concatenate({best, sinks}, -1), -1, /*keepdims=*/true);
    const array factor = mx::divide(mx::multiply(scale_, array(o_.scale)), sum);
    const array first = mx::broadcast_to(mx::arange(0, o_.shared, mx::int32), {tokens, o_.shared});
    const array routed = routed_(x, chosen, mx::multiply(best, factor));
    if (fault("shared experts dropped")) return routed;
    return mx::add(routed, shared_(x, mx::contiguous(first), mx::multiply(sinks, factor)));
  }

 private:
  SinkOptions o_;
  Linear router_;
  array correction_, scale_;
  ExpertBank routed_, shared_;
};

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
  const int window = c.integer("sliding_window_size", 1, kMaxPositions, 512);
  const int taps = c.integer(c.has("sconv_kernel_size") ? "sconv_kernel_size" : "conv_kernel_size", 2, 16, 4);
  const int inner = c.integer("d_rel", 1, kMaxWidth, 16);
  const Kind full{
      .heads = d.heads,
      .kv_heads = d.kv_heads,
      .head_dim = d.head_dim,
      .window = 0,
      .reach = c.integer("rel_extent", 1, kMaxPositions, 1024),
      .floor = c.is_null("log_scaling_n_floor") ? 0 : c.integer("log_scaling_n_floor", 0, kMaxPositions, 0),
      .sharpening = factor(c, "log_scaling_alpha", 0.1f)};
  const Kind local{.heads = c.integer("swa_num_attention_heads", 1, kMaxHeads, 64),
                   .kv_heads = c.integer("swa_num_key_value_heads", 1, kMaxHeads, 16),
                   .head_dim = c.integer("swa_head_dim", 1, 8192, 128),
                   .window = window,
                   .reach = window,
                   .floor = 0,
                   .sharpening = 0.0f};
  const auto [dense_width, expert_width] = widths(c);
  const int experts = c.integer("n_routed_experts", 1, 4096);
  const auto activation = activation_from(c, "hidden_act", "silu");
  const SinkOptions moe{.hidden = d.hidden,
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
    const Kind& kind = sliding[static_cast<size_t>(i)] ? local : full;
    model.add(Layer{.mixer_norm = norm(layer, "input_layernorm"),
                    .attention = DistanceAttention(layer / "self_attn", kind, d.hidden, inner, taps, eps),
                    .after_attention = Smear(layer / "attn_sconv", d.hidden, taps),
                    .ffn_norm = norm(layer, "post_attention_layernorm"),
                    .ffn = ffn(i, layer / "mlp"),
                    .after_ffn = Smear(layer / "mlp_sconv", d.hidden, taps)});
  }
  model.finish(norm(w, "model.norm"), w.linear("lm_head", d.vocab, d.hidden, Bias::none));
  model.logit_scale(1.0f / factor(c, "logits_mup_width_multiplier", 24.0f));
  return model;
}

/// As published: gate and up in turn under other names; as transformers saves: one after another.
std::vector<Rule> rules(const Config& outer, const Source& source) {
  const Config c = text_config(outer);
  auto list =
      text_side_rules() +
      std::vector<Rule>{drop("model.mtp.*"),
                        drop("model.visual.*"),
                        drop("model.audio.*"),
                        rename("model.llm.unembed.weight", "lm_head.weight"),
                        rename("model.llm.embed.weight", "model.embed_tokens.weight"),
                        rename("model.llm.embed_norm.weight", "model.embed_tokens.embed_norm.weight"),
                        rename("model.llm.*", "model.*"),
                        deal(-2, "*.mlp.experts.w13_weight",
                             {"*.mlp.experts.gate_proj.weight", "*.mlp.experts.up_proj.weight"}),
                        rename("*.mlp.experts.w2_weight", "*.mlp.experts.down_proj.weight"),
                        deal(-2, "*.shared_experts.shared_w13_weight",
                             {"*.shared_experts.gate_proj.weight", "*.shared_experts.up_proj.weight"}),
                        rename("*.shared_experts.shared_w2_weight", "*.shared_experts.down_proj.weight"),
                        deal(0, "*.mlp.w13_dn.weight", {"*.mlp.gate_proj.weight", "*.mlp.up_proj.weight"}),
                        rename("*.mlp.w2_md.weight", "*.mlp.down_proj.weight"),
                        rename("*.mlp.gate.bias", "*.mlp.gate.e_score_correction_bias"),
                        rename("*.attn.k_sconv.weight", "*.self_attn.k_sconv.conv1d.weight"),
                        rename("*.attn.v_sconv.weight", "*.self_attn.v_sconv.conv1d.weight")};
  const std::pair<const char*, const char*> attention[] = {{"wq_du", "q_proj"},
                                                           {"wk_dv", "k_proj"},
                                                           {"wv_dv", "v_proj"},
                                                           {"wr_du", "r_proj"},
                                                           {"wo_ud", "o_proj"}};
  for (const auto& [from, to] : attention)
    list.push_back(
        rename(std::string("*.attn.") + from + ".weight", std::string("*.self_attn.") + to + ".weight"));
  for (const char* kept : {"q_norm.weight", "k_norm.weight", "rel_logits_proj.proj"})
    list.push_back(rename(std::string("*.attn.") + kept, std::string("*.self_attn.") + kept));
  list =
      list + std::vector<Rule>{rename("*.attn_sconv.weight", "*.attn_sconv.conv1d.weight"),
                               rename("*.mlp_sconv.weight", "*.mlp_sconv.conv1d.weight"),
                               rename("*.mlp_norm.weight", "*.post_attention_layernorm.weight"),
                               rename("*.attn_norm.weight", "*.input_layernorm.weight"),
                               split_axis(-2, "*.mlp.experts.gate_up_proj",
                                          {"*.mlp.experts.gate_proj.weight", "*.mlp.experts.up_proj.weight"}),
                               rename("*.mlp.experts.down_proj", "*.mlp.experts.down_proj.weight"),
                               transpose("*.rel_logits_proj.proj"),
                               rename("*.rel_logits_proj.proj", "*.rel_logits_proj.weight")};
  for (const char* name : {"gate_proj", "up_proj", "down_proj"})
    list.push_back(
        rename(std::string("*.shared_experts.") + name, std::string("*.shared_experts.") + name + ".weight"));
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
