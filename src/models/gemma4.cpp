#include "models/gemma4.h"

#include <algorithm>
#include <cmath>

#include "models/kit.h"
#include "models/wrapper.h"
#include "nn/draft_inputs.h"
#include "nn/fault.h"
#include "nn/per_layer.h"
#include "nn/shared_attention.h"

namespace mlxcel {

std::vector<bool> gemma4_sliding(const Config& c, int layers) {
  const auto kinds = listed_kinds(c, "layer_types", layers, {"sliding_attention", "full_attention"});
  std::vector<bool> sliding;
  for (int i = 0; i < layers; ++i)
    sliding.push_back(kinds.empty() ? (i + 1) % 6 != 0
                                    : kinds[static_cast<size_t>(i)] == "sliding_attention");
  sliding.back() = false;  // as the reference insists
  return sliding;
}

Gemma4Heads gemma4_heads(const Config& c, bool key_is_value) {
  const auto d = Dims::from(c, {.kv_heads = 4, .head_dim = 256});
  Dims wide = d;
  wide.head_dim = c.integer("global_head_dim", 2, 8192, 512);
  if (key_is_value && c.has("num_global_key_value_heads"))
    wide.kv_heads = c.integer("num_global_key_value_heads", 1, d.heads);
  // As transformers saves it: what full layers have otherwise stands in a table by layer; the last one is
  // full.
  const Config own = c.child("per_layer_config").child(std::to_string(d.layers - 1));
  wide.head_dim = own.integer("head_dim", 2, 8192, wide.head_dim);
  wide.kv_heads = own.integer("num_key_value_heads", 1, d.heads, wide.kv_heads);
  if (d.heads % wide.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: num_attention_heads {}: expected a multiple of num_global_key_value_heads {}", c.where(),
         d.heads, wide.kv_heads);
  const bool plain_ropes = c.child("rope_parameters").empty();
  auto local = plain_ropes ? Rope::plain(d.head_dim, 10000.0f)
                           : Rope::from(c, d, {.theta = 10000.0f, .layer_type = "sliding_attention"});
  auto global = plain_ropes ? Rope::proportional(wide.head_dim, 1000000.0f, 0.25f)
                            : Rope::from(c, wide, {.theta = 1000000.0f, .layer_type = "full_attention"});
  return {d, wide, std::move(local), std::move(global)};
}

namespace {

/// Experts chosen by a normed and scaled view of what the MLP reads too.
struct Experts {
  RmsNorm view;
  array scale, factor;  // [hidden], [experts]
  float root;           // 1 / sqrt(hidden)
  ExpertRouter router;
  SparseMoe experts;
  RmsNorm before, after, after_mlp;

  /// `mlp`: what the dense branch gives.
  array operator()(const array& h, const array& mlp) const {
    const auto [chosen, weights] = router(mx::multiply(mx::multiply(view(h), scale), array(root)));
    const array weighed =
        fault("expert scale dropped") ? weights : mx::multiply(weights, mx::take(factor, chosen, 0));
    return mx::add(after_mlp(mlp), after(experts.with(before(h), chosen, weighed, std::nullopt)));
  }
};

Experts experts(const Config& c, const Weights& layer, int hidden, float eps, Activation activation) {
  MoeOptions o;
  o.experts = c.integer("num_experts", 1, 4096);
  o.per_token = c.integer("top_k_experts", 1, o.experts);
  o.width = c.integer("moe_intermediate_size", 1, kMaxWidth);
  o.renormalize = true;
  o.activation = activation;
  o.router = "router.proj";
  o.bank = "experts.switch_glu";
  const ExpertRouter router(layer, hidden, o);
  o.router = "";  // its choice is weighed further
  return {.view = RmsNorm{.weight = std::nullopt, .eps = eps},
          .scale = layer.tensor("router.scale", {hidden}),
          .factor = layer.tensor("router.per_expert_scale", {o.experts}),
          .root = 1.0f / std::sqrt(static_cast<float>(hidden)),
          .router = router,
          .experts = SparseMoe(layer, hidden, o),
          .before = layer.rms_norm("pre_feedforward_layernorm_2", hidden, eps),
          .after = layer.rms_norm("post_feedforward_layernorm_2", hidden, eps),
          .after_mlp = layer.rms_norm("post_feedforward_layernorm_1", hidden, eps)};
}

struct Layer {
  RmsNorm norm, after_attention, ffn_norm, after_ffn;
  SharedAttention attention;
  GatedMlp mlp;
  std::optional<Experts> moe;
  std::optional<PerLayerInputs> inputs;
  std::optional<PerLayerGate> gate;
  std::optional<DraftInputs> drafts;  // the first layer of a model that has them
  array scalar;                       // [1]
  std::optional<array> draft_scalar;  // of drafts' tokens
  int index;

  array operator()(const array& from, Step& step) const {
    if (inputs && index == 0) inputs->begin(from, step);
    const array in = drafts ? (*drafts)(from, step) : from;
    const array seen = mx::add(in, after_attention(attention(norm(in), step)));
    const array dense = mlp(ffn_norm(seen));
    array h = mx::add(seen, after_ffn(moe ? (*moe)(seen, dense) : dense));
    if (gate) h = mx::add(h, (*gate)(h, inputs->layer(index)));
    if (fault("layer scalar dropped")) return h;
    return mx::multiply(h, draft_scalar ? by_draft(step, scalar, *draft_scalar) : scalar);
  }
};

}  // namespace

Decoder gemma4_decoder(const Config& whole, const Weights& w, const Gemma4Kind& kind) {
  const Config c = text_config(whole);
  if (c.get<std::string>("use_bidirectional_attention", "vision") != "vision")
    fail(ErrorKind::unsupported, "{}: Gemma 4 as a two-way embedder is known but not supported yet",
         c.where());
  const bool key_is_value = c.get("attention_k_eq_v", kind.drafts);
  const auto kinds = gemma4_heads(c, key_is_value);
  const Dims& d = kinds.sliding;
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 9216);
  const auto activation = activation_from(c.get<std::string>("hidden_activation", "gelu_pytorch_tanh"));
  const auto sliding = gemma4_sliding(c, d.layers);
  const int window = c.integer("sliding_window", 1, kMaxPositions, 512);
  const int owners = d.layers - c.integer("num_kv_shared_layers", 0, d.layers - 1, 0);
  const auto readers = sharing(c, sliding, owners);
  const int input_width = c.integer("hidden_size_per_layer_input", 0, kMaxWidth, kind.drafts ? 0 : 256);
  std::optional<PerLayerInputs> inputs;
  if (input_width > 0)
    inputs.emplace(w / "model",
                   PerLayerOptions{.hidden = d.hidden,
                                   .layers = d.layers,
                                   .width = input_width,
                                   .vocab = c.integer("vocab_size_per_layer_input", 1, kMaxVocab, 262144),
                                   .eps = eps});

  const float scale = root_in_type(w, "model.embed_tokens.weight", d.hidden);
  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden, scale));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers)) {
    const bool slides = sliding[static_cast<size_t>(i)], owner = i < owners;
    const bool double_wide = !owner && c.get("use_double_wide_mlp", false);
    const auto norm = [&, &scope = layer](const char* name) { return scope.rms_norm(name, d.hidden, eps); };
    model.add(Layer{
        .norm = norm("input_layernorm"),
        .after_attention = norm("post_attention_layernorm"),
        .ffn_norm = norm("pre_feedforward_layernorm"),
        .after_ffn = norm("post_feedforward_layernorm"),
        .attention = SharedAttention(layer / "self_attn", kinds.dims(slides),
                                     {.rope = kinds.rope(slides),
                                      .eps = eps,
                                      .window = slides ? window : 0,
                                      .key_is_value = key_is_value && !slides,
                                      .owner = owner,
                                      .keys = readers.of(i),
                                      .bias = bias_if(c.get("attention_bias", false))}),
        .mlp = GatedMlp(layer / "mlp", d.hidden, double_wide ? 2 * width : width, activation, Bias::none),
        .moe = c.get("enable_moe_block", kind.drafts)
                   ? std::optional(experts(c, layer, d.hidden, eps, activation))
                   : std::nullopt,
        .inputs = inputs,
        .gate = inputs ? std::optional(PerLayerGate(layer, d.hidden, input_width, activation, eps))
                       : std::nullopt,
        .drafts = kind.drafts && i == 0 ? std::optional(DraftInputs(w / "model", {.hidden = d.hidden,
                                                                                  .width = width,
                                                                                  .vocab = d.vocab,
                                                                                  .activation = activation,
                                                                                  .eps = eps,
                                                                                  .scale = scale}))
                                        : std::nullopt,
        .scalar = layer.tensor("layer_scalar", {1}),
        .draft_scalar = kind.drafts ? std::optional(layer.tensor("draft_scalar", {1})) : std::nullopt,
        .index = i});
  }
  model.finish(w.rms_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", whole.get("tie_word_embeddings", true)))));
  model.softcap(c.get("final_logit_softcapping", kind.drafts ? 30.0f : 0.0f));
  return model;
}

std::vector<Rule> gemma4_rules() {
  auto rules = text_side_rules();
  rules.push_back(
      split_axis(-2, "*.experts.gate_up_proj",
                 {"*.experts.switch_glu.gate_proj.weight", "*.experts.switch_glu.up_proj.weight"}));
  rules.push_back(rename("*.experts.down_proj", "*.experts.switch_glu.down_proj.weight"));
  return rules;
}

}  // namespace mlxcel
