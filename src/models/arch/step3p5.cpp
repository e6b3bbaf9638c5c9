// Step 3.5: sliding layers with heads of their own among full ones; base, rotated part and the clamps of
// gated units differ by layer; a sigmoid gate for each head; sigmoid experts chosen with a bias beside a
// shared one. Published norms are stored around zero, MLX's conversions around one. Reference: mlx-lm
// step3p5.
#include <set>

#include "models/kit.h"

namespace mlxcel {

namespace {

/// An entry for each layer, of a list that may be longer (layers of next-token prediction).
float listed(const Config& c, const char* key, int layer, float fallback) {
  if (!c.is_array(key)) return c.get(key, fallback);
  const auto list = c.get<std::vector<float>>(key);
  return layer < static_cast<int>(list.size()) ? list[static_cast<size_t>(layer)] : fallback;
}

std::optional<ClampedGlu> clamp(const Config& c, const char* key, int layer) {
  const float limit = listed(c, key, layer, 0.0f);
  if (!(limit > 0.0f)) return std::nullopt;
  return ClampedGlu{.limit = limit, .after = true};
}

std::set<int> sparse_layers(const Config& c, int layers) {
  std::set<int> list;
  const auto text = c.get<std::string>("moe_layers_enum", "");
  if (text.empty())
    for (int i = 1; i < layers; ++i) list.insert(i);
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string number = text.substr(at, comma - at);
    if (number.empty() || number.size() > 6 || number.find_first_not_of("0123456789 ") != std::string::npos)
      fail(ErrorKind::bad_checkpoint, "{}: moe_layers_enum: expected numbers with commas, found \"{}\"",
           c.where(), text.substr(0, 64));
    list.insert(std::stoi(number));
    at = comma + 1;
  }
  return list;
}

Dims dims(const Config& c) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("hidden_size", 1, kMaxWidth);
  d.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  d.heads = c.integer("num_attention_heads", 1, 4096);
  d.kv_heads = c.integer("num_attention_groups", 1, d.heads);
  d.head_dim = c.integer("head_dim", 2, 8192);
  d.max_positions = c.integer("max_position_embeddings", 0, kMaxPositions, 262144);
  return d;
}

void check_groups(const Config& c, const Dims& d) {
  if (d.heads % d.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: {} heads: expected a multiple of num_attention_groups {}", c.where(),
         d.heads, d.kv_heads);
}

Rope rotation(const Config& c, const Dims& d, int layer, const std::string& type) {
  const float theta = listed(c, "rope_theta", layer, 10000.0f),
              part = listed(c, "partial_rotary_factors", layer, 1.0f);
  const auto scaled = c.get<std::vector<std::string>>("yarn_only_types", {});
  const bool plain = !scaled.empty() && std::find(scaled.begin(), scaled.end(), type) == scaled.end();
  const int rotated = static_cast<int>(static_cast<float>(d.head_dim) * part);
  if (!(theta > 1.0f) || rotated < 2 || rotated > d.head_dim || rotated % 2 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: layer {}: {} of {} entries rotated with base {}", c.where(), layer,
         rotated, d.head_dim, theta);
  if (plain) return Rope::plain(rotated, theta);
  // The base is this layer's, whatever the key holds for others.
  return Rope::from(c, d,
                    {.theta = theta,
                     .part = part,
                     .theta_key = "rope_theta_of_layer",
                     .part_key = "partial_rotary_factor_of_layer"});
}

MoeOptions experts(const Config& c, int layer) {
  MoeOptions moe;
  moe.experts = c.integer("moe_num_experts", 1, 4096, 288);
  moe.per_token = c.integer("moe_top_k", 1, moe.experts, 8);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth, 1280);
  moe.scoring = Scoring::sigmoid;
  moe.router = "gate.gate";
  moe.correction = "gate.router_bias";
  moe.renormalize = c.get("norm_expert_weight", true);
  moe.renorm_eps = 1e-20f;
  moe.scale = c.get("moe_router_scaling_factor", 3.0f);
  moe.bank = "switch_mlp";
  moe.clamp = clamp(c, "swiglu_limits", layer);
  moe.shared = {.width = c.integer("share_expert_dim", 1, kMaxWidth, 1280),
                .name = "share_expert",
                .clamp = clamp(c, "swiglu_limits_shared", layer)};
  return moe;
}

float norm_epsilon(const Config& c) { return epsilon(c, "rms_norm_eps", 1e-5f); }

int window_of(const Config& c) { return c.integer("sliding_window", 1, kMaxPositions, 512); }

/// Of layer `i`, which sees `window` tokens, 0: all.
Attention attention(const Config& c, const Weights& layer, int i, int window) {
  const Dims d = dims(c);
  Dims local = d;
  if (const Config other = c.child("attention_other_setting"); !other.empty()) {
    local.heads = other.integer("num_attention_heads", 1, 4096);
    local.kv_heads = other.integer("num_attention_groups", 1, local.heads);
  }
  check_groups(c, d);
  check_groups(c, local);
  std::optional<OutputGate> gate;
  if (c.get("use_head_wise_attn_gate", true)) gate = OutputGate{.name = "g_proj", .per_head = true};
  const bool slides = window > 0;
  return Attention(
      layer / "self_attn", slides ? local : d,
      {.rope = rotation(c, d, i, slides && c.has("layer_types") ? "sliding_attention" : "full_attention"),
       .qk_norm = HeadNormOptions{.eps = norm_epsilon(c)},
       .window = window,
       .gate = gate,
       .qkv_bias = Bias::none,
       .out_bias = Bias::none});
}

GatedMlp dense(const Config& c, const Weights& layer, int i) {
  return GatedMlp(layer / "mlp", dims(c).hidden, c.integer("intermediate_size", 1, kMaxWidth),
                  Activation::silu, Bias::none, {}, clamp(c, "swiglu_limits_shared", i));
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const auto plan = LayerPlan::from(c, d.layers, window_of(c), [](int i) { return i % 2 == 0; });
  const auto sparse = sparse_layers(c, d.layers);
  return pre_norm_decoder(
      c, w, d, norm_epsilon(c),
      {.mixer = [&](int i, const Weights& layer) { return attention(c, layer, i, plan.window(i)); },
       .ffn =
           [&](int i, const Weights& layer) {
             if (sparse.contains(i)) return Ffn(SparseMoe(layer / "mlp", d.hidden, experts(c, i)));
             return Ffn(dense(c, layer, i));
           }});
}

/// A sliding dense layer with a head of its own; of several published blocks the first.
MtpBlock mtp(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const float eps = norm_epsilon(c);
  const Weights own = w / "mtp";
  return deepseek_mtp(own, d.hidden, eps,
                      {PreNorm{.mixer_norm = own.rms_norm("input_layernorm", d.hidden, eps),
                               .mixer = attention(c, own, d.layers, window_of(c)),
                               .ffn_norm = own.rms_norm("post_attention_layernorm", d.hidden, eps),
                               .ffn = dense(c, own, d.layers)}});
}

/// As StepFun publishes it: norms are stored around zero.
bool published_raw(const Source& source) {
  const auto names = source.names();
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.find(".moe.") != std::string::npos || (name.find(".share_expert.") != std::string::npos &&
                                                       name.find(".mlp.share_expert.") == std::string::npos);
  });
}

std::vector<Rule> mtp_rules(const Config& c, const Source& source) {
  const auto block = fmt::format("model.layers.{}.", c.integer("num_hidden_layers", 1, kMaxLayers));
  std::vector<Rule> rules{rename(block + "transformer.*", block + "*"),
                          rename(block + "shared_head.output.*", "mtp.shared_head.head.*"),
                          rename(block + "*", "mtp.*"), drop("model.*"), drop("lm_head.*")};
  if (published_raw(source)) rules.push_back(add_constant("mtp.*norm.weight", 1.0f));
  return rules;
}

std::vector<Rule> weights(const Config& c, const Source& source) {
  auto rules = drop_layers("model.layers", c.integer("num_hidden_layers", 1, kMaxLayers), 8);
  rules.push_back(drop("*.mtp*"));
  if (!published_raw(source)) return rules;
  for (const auto& [from, to] : {std::pair("*.moe.gate_proj.*", "*.mlp.switch_mlp.gate_proj.*"),
                                 {"*.moe.up_proj.*", "*.mlp.switch_mlp.up_proj.*"},
                                 {"*.moe.down_proj.*", "*.mlp.switch_mlp.down_proj.*"},
                                 {"*.moe.gate.*", "*.mlp.gate.gate.*"},
                                 {"*.moe.router_bias", "*.mlp.gate.router_bias"},
                                 {"model.layers.#.share_expert.*", "model.layers.#.mlp.share_expert.*"}})
    rules.push_back(rename(from, to));
  for (const char* norm : {"*_layernorm.weight", "*_norm.weight", "model.norm.weight"})
    rules.push_back(add_constant(norm, 1.0f));
  return rules;
}

}  // namespace

Arch arch_step3p5() {
  return {
      .model_types = {"step3p5"},
      .gguf = {"step35"},
      .reference = "mlx-lm step3p5",
      .build = build,
      .weights = weights,
      .mtp = {.build = mtp, .weights = mtp_rules},
      .tiny = R"({"model_type": "step3p5", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 32,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "sliding_window": 8,
              "rope_theta": [10000.0, 1000.0, 1000.0, 10000.0], "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5],
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                               "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
              "yarn_only_types": ["full_attention"],
              "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
              "attention_other_setting": {"num_attention_heads": 4, "num_attention_groups": 1},
              "use_head_wise_attn_gate": true, "moe_layers_enum": "1,2,3", "moe_num_experts": 8, "moe_top_k": 3,
              "moe_intermediate_size": 64, "share_expert_dim": 64, "moe_router_scaling_factor": 1.5,
              "norm_expert_weight": true, "swiglu_limits": [0.0, 0.3, 0.0, 0.3],
              "swiglu_limits_shared": [0.3, 0.0, 0.3, 0.0], "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
