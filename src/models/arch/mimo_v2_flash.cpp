// MiMo-V2-Flash: five layers with a short window and learned sinks to one that sees all, each kind with its
// own heads and base; values narrower than keys and scaled; DeepSeek-V3's experts without shared ones.
// Reference: transformers MiMoV2FlashForCausalLM.
#include "models/kit.h"
#include "nn/narrow_values.h"

namespace mlxcel {

namespace {

/// layer_types, or hybrid_layer_pattern with a one for each sliding layer.
std::vector<bool> sliding_layers(const Config& c, int layers) {
  std::vector<bool> list;
  if (const auto kinds = listed_kinds(c, "layer_types", layers, {"sliding_attention", "full_attention"});
      !kinds.empty()) {
    for (const auto& kind : kinds) list.push_back(kind == "sliding_attention");
    return list;
  }
  const auto marks = c.get<std::vector<int>>("hybrid_layer_pattern", {});
  if (!marks.empty() && static_cast<int>(marks.size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: hybrid_layer_pattern: expected {} entries, found {}", c.where(),
         layers, marks.size());
  for (int i = 0; i < layers; ++i)
    list.push_back(marks.empty() ? i != 0 && (i + 1) % 6 != 0 : marks[static_cast<size_t>(i)] == 1);
  return list;
}

/// mlp_layer_types, or moe_layer_freq with a one for each sparse layer; without either all but the first.
bool sparse(const Config& c, int layer, int layers) {
  if (c.has("mlp_layer_types")) return is_sparse(c, layer, layers);
  const auto marks = c.get<std::vector<int>>("moe_layer_freq", {});
  if (marks.empty()) return layer > 0;
  if (static_cast<int>(marks.size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: moe_layer_freq: expected {} entries, found {}", c.where(), layers,
         marks.size());
  return marks[static_cast<size_t>(layer)] == 1;
}

Rope rotation(const Config& c, const Dims& d, bool slides) {
  if (!c.child("rope_parameters").empty())
    return Rope::from(c, d,
                      {.theta = slides ? 1e4f : 5e6f,
                       .part = 0.334f,
                       .layer_type = slides ? "sliding_attention" : "full_attention"});
  const float theta = slides ? c.get("swa_rope_theta", 1e4f) : c.get("rope_theta", 5e6f);
  const float part = c.get("partial_rotary_factor", 0.334f);
  if (!(part > 0.0f && part <= 1.0f))
    fail(ErrorKind::bad_checkpoint, "{}: partial_rotary_factor: expected more than 0 and at most 1, found {}",
         c.where(), part);
  return Rope::plain(static_cast<int>(part * static_cast<float>(d.head_dim)), theta);
}

NarrowValuesOptions attention(const Config& c, const Dims& d, bool slides) {
  // Published configs name the window without the query itself.
  const int window = c.has("sliding_window_size") ? c.integer("sliding_window_size", 1, kMaxPositions) + 1
                                                  : c.integer("sliding_window", 1, kMaxPositions, 129);
  Dims own = d;
  if (slides) {
    own.heads = c.integer("swa_num_attention_heads", 1, 4096, d.heads);
    own.kv_heads = c.integer("swa_num_key_value_heads", 1, own.heads, std::min(2 * d.kv_heads, own.heads));
    own.head_dim = c.integer("swa_head_dim", 2, 8192, d.head_dim);
  }
  if (own.heads % own.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: {} heads of sliding layers: expected a multiple of {}", c.where(),
         own.heads, own.kv_heads);
  const int value = c.integer("v_head_dim", 1, 8192, 128);
  return {.hidden = d.hidden,
          .heads = own.heads,
          .kv_heads = own.kv_heads,
          .key_dim = own.head_dim,
          .value_dim = slides ? c.integer("swa_v_head_dim", 1, 8192, value) : value,
          .rope = rotation(c, own, slides),
          .window = slides ? window : 0,
          .sinks = slides ? c.get("add_swa_attention_sink_bias", true)
                          : c.get("add_full_attention_sink_bias", false),
          .value_scale = c.get("attention_value_scale", 1.0f),
          .bias = bias_if(c.get("attention_bias", false))};
}

Dims dims(const Config& c) { return Dims::from(c, {.head_dim = 192}); }

float norm_epsilon(const Config& c) {
  return c.has("layernorm_epsilon") ? epsilon(c, "layernorm_epsilon", 1e-5f)
                                    : epsilon(c, "rms_norm_eps", 1e-5f);
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const float eps = norm_epsilon(c);
  auto moe = MoeOptions::grouped(c);
  if (!c.has("n_shared_experts")) moe.shared.width = 0;
  const auto sliding = sliding_layers(c, d.layers);
  const auto local = attention(c, d, true), full = attention(c, d, false);

  return pre_norm_decoder(
      c, w, d, eps,
      {.mixer =
           [&](int i, const Weights& layer) {
             return NarrowValues(layer / "self_attn", sliding[static_cast<size_t>(i)] ? local : full);
           },
       .ffn =
           [&](int i, const Weights& layer) {
             return sparse_or_dense(layer / "mlp", c, d.hidden, moe, sparse(c, i, d.layers));
           }});
}

/// A sliding layer with a plain feed-forward; of several published blocks the first.
MtpBlock mtp(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const float eps = norm_epsilon(c);
  const Weights own = w / "mtp";
  return deepseek_mtp(own, d.hidden, eps,
                      {PreNorm{.mixer_norm = own.rms_norm("input_layernorm", d.hidden, eps),
                               .mixer = NarrowValues(own / "self_attn", attention(c, d, true)),
                               .ffn_norm = own.rms_norm("pre_mlp_layernorm", d.hidden, eps),
                               .ffn = GatedMlp::from(c, own / "mlp", d.hidden)}},
                      "final_layernorm", true);
}

}  // namespace

Arch arch_mimo_v2_flash() {
  return {
      .model_types = {"mimo_v2_flash"},
      .gguf = {"mimo2"},
      .reference = "transformers MiMoV2FlashForCausalLM",
      .build = build,
      .weights = std::vector<Rule>{drop("model.mtp.*"), rename("*.attention_sink_bias", "*.sinks")} +
                 stack_experts(),
      .mtp = {.build = mtp,
              .weights = mtp_rules_of("model.mtp.layers.0.") +
                         std::vector<Rule>{rename("*.attention_sink_bias", "*.sinks")}},
      .tiny =
          R"({"model_type": "mimo_v2_flash", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 48,
              "v_head_dim": 32, "swa_num_key_value_heads": 3, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-5, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
              "sliding_window": 9, "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}},
              "attention_value_scale": 0.7, "attention_bias": true, "mlp_layer_types": ["dense", "sparse", "sparse"],
              "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_group": 2,
              "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.5, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
