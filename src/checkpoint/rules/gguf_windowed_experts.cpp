// Families with experts whose layers differ in windows, heads or rotation: mellum, laguna, step35, mimo2.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr int64_t kMost = int64_t{1} << 30;

/// Heads that differ between layers are read layer by layer.
std::vector<GgufKey> keys_without_heads() {
  constexpr std::string_view heads[] = {"attention.head_count", "attention.head_count_kv"};
  return gguf_keys_without(gguf_decoder_keys(), heads);
}

std::span<const GgufKey> mellum_keys() {
  static const auto keys =
      std::vector<GgufKey>{{"expert_count", "num_experts", Kind::integer, true},
                           {"expert_used_count", "num_experts_per_tok", Kind::integer, true},
                           {"expert_feed_forward_length", "moe_intermediate_size", Kind::integer, true},
                           {"attention.sliding_window", "sliding_window"}} +
      gguf_decoder_keys();
  return keys;
}

std::span<const GgufKey> laguna_keys() {
  static const auto keys =
      std::vector<GgufKey>{
          {"expert_count", "num_experts", Kind::integer, true},
          {"expert_used_count", "num_experts_per_tok", Kind::integer, true},
          {"expert_feed_forward_length", "moe_intermediate_size", Kind::integer, true},
          {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", Kind::integer, true},
          {"expert_weights_scale", "moe_routed_scaling_factor", Kind::number},
          {"attention.head_count_kv", "num_key_value_heads", Kind::integer, true},
          {"attention.sliding_window", "sliding_window"}} +
      keys_without_heads();
  return keys;
}

std::span<const GgufKey> step_keys() {
  static const auto keys =
      std::vector<GgufKey>{{"expert_count", "moe_num_experts", Kind::integer, true},
                           {"expert_used_count", "moe_top_k", Kind::integer, true},
                           {"expert_feed_forward_length", "moe_intermediate_size", Kind::integer, true},
                           {"expert_shared_feed_forward_length", "share_expert_dim", Kind::integer, true},
                           {"expert_weights_scale", "moe_router_scaling_factor", Kind::number},
                           {"attention.sliding_window", "sliding_window", Kind::integer, true}} +
      keys_without_heads();
  return keys;
}

std::span<const GgufKey> mimo_keys() {
  static const auto keys =
      std::vector<GgufKey>{{"expert_count", "n_routed_experts", Kind::integer, true},
                           {"expert_used_count", "num_experts_per_tok", Kind::integer, true},
                           {"expert_feed_forward_length", "moe_intermediate_size", Kind::integer, true},
                           {"expert_group_count", "n_group"},
                           {"expert_group_used_count", "topk_group"},
                           {"attention.head_count", "num_attention_heads", Kind::integer, true},
                           {"attention.value_length", "v_head_dim", Kind::integer, true},
                           {"attention.value_scale", "attention_value_scale", Kind::number},
                           {"attention.sliding_window", "sliding_window", Kind::integer, true},
                           {"rope.freq_base_swa", "swa_rope_theta", Kind::number}} +
      keys_without_heads();
  return keys;
}

constexpr const char* kBank = "model.layers.#.mlp.switch_mlp";

std::span<const GgufName> mellum_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.weight"}} +
      gguf_unit("_exps", kBank));
  return names;
}

std::span<const GgufName> laguna_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"blk.#.attn_gate.weight", "model.layers.#.self_attn.g_proj.weight"},
                            {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.weight"},
                            {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.gate.e_score_correction_bias"}} +
      gguf_unit("_exps", kBank) + gguf_unit("_shexp", "model.layers.#.mlp.shared_experts"));
  return names;
}

/// Norms hold the one that the published ones leave out, as in MLX's conversions, whose names these are.
std::span<const GgufName> step_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"blk.#.nextn.*", "model.mtp.#.nextn.*"},
                            {"blk.#.attn_gate.weight", "model.layers.#.self_attn.g_proj.weight"},
                            {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.gate.weight"},
                            {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.gate.router_bias"}} +
      gguf_unit("_exps", kBank) + gguf_unit("_shexp", "model.layers.#.mlp.share_expert"));
  return names;
}

std::span<const GgufName> mimo_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"blk.#.nextn.*", "model.mtp.#.nextn.*"},
                            {"blk.#.attn_sinks.weight", "model.layers.#.self_attn.sinks"},
                            {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.weight"},
                            {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.gate.e_score_correction_bias"}} +
      gguf_unit("_exps", kBank));
  return names;
}

void complete_mellum(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  complete_gguf_experts(facts, config);
  config.set("hidden_act", "silu");
  config.set("norm_topk_prob", true);  // fixed in llama.cpp's graph
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  set_gguf_mlp_types(facts, config);
  if (config.contains("sliding_window")) set_gguf_layer_types(facts, config, 4);
  const double base = facts.number("rope.freq_base").value_or(10000.0);
  ConfigDraft full = gguf_rope_scaling(facts, config.integer("max_position_embeddings")), local, ropes;
  if (full.empty()) full.set("rope_type", "default");
  full.set("rope_theta", base);
  local.set("rope_type", "default");  // sliding layers are never scaled
  local.set("rope_theta", facts.number("rope.freq_base_swa").value_or(base));
  ropes.set("full_attention", full);
  ropes.set("sliding_attention", local);
  config.set("rope_parameters", ropes);
  config.erase("rope_scaling");
}

/// The rotated part of a head for one kind of layer.
double rotated(const GgufFacts& facts, const ConfigDraft& config, const char* key) {
  const auto width = config.integer("head_dim");
  const auto part = facts.integer(key, 2, width).value_or(width);
  return static_cast<double>(part) / static_cast<double>(width);
}

void complete_laguna(const GgufFacts& facts, ConfigDraft& config) {
  const auto layers = config.integer("num_hidden_layers");
  const auto heads = facts.per_layer("attention.head_count", layers, 4096, 0);
  config.set("num_attention_heads", heads.front());
  config.set("num_attention_heads_per_layer", heads);
  complete_gguf_rope(facts, config);
  config.erase("partial_rotary_factor");
  config.set("hidden_act", "silu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  set_gguf_mlp_types(facts, config);
  const auto gate = facts.file.tensors.find("blk.0.attn_gate.weight");
  if (gate == facts.file.tensors.end())
    fail(ErrorKind::bad_checkpoint, "{}: blk.0.attn_gate.weight: missing", facts.file.first.string());
  config.set("gating", gate->second.shape[0] == heads.front() ? "per-head" : "per-element");

  const double base = facts.number("rope.freq_base").value_or(500000.0);
  ConfigDraft full = gguf_rope_scaling(facts, config.integer("max_position_embeddings")), local, ropes;
  if (full.empty()) full.set("rope_type", "default");
  full.set("rope_theta", base);
  full.set("partial_rotary_factor", rotated(facts, config, "rope.dimension_count"));
  local.set("rope_type", "default");
  local.set("rope_theta", facts.number("rope.freq_base_swa").value_or(base));
  local.set("partial_rotary_factor", rotated(facts, config, "rope.dimension_count_swa"));
  ropes.set("full_attention", full);
  ropes.set("sliding_attention", local);
  config.set("rope_parameters", ropes);
  config.erase("rope_scaling");
  if (!config.contains("sliding_window")) return;
  const auto sliding = facts.flags("attention.sliding_window_pattern", layers);
  std::vector<std::string> types;  // without a list every fourth layer is full, the first of them
  for (int64_t i = 0; i < layers; ++i)
    types.emplace_back((sliding.empty() ? i % 4 != 0 : sliding[static_cast<size_t>(i)]) ? "sliding_attention"
                                                                                        : "full_attention");
  config.set("layer_types", types);
}

/// Limits of gated units, a number for each layer that the model has.
void set_limits(const GgufFacts& facts, ConfigDraft& config, const char* gguf, const char* hf) {
  auto limits = facts.numbers(gguf, facts.integer("block_count", 1, 4096).value_or(0));
  if (limits.empty()) return;
  limits.resize(static_cast<size_t>(config.integer("num_hidden_layers")));
  config.set(hf, limits);
}

void complete_step(const GgufFacts& facts, ConfigDraft& config) {
  const auto blocks = config.integer("num_hidden_layers");
  const auto sliding = facts.flags("attention.sliding_window_pattern", blocks);
  const auto heads = facts.per_layer("attention.head_count", blocks, 4096, 0),
             groups = facts.per_layer("attention.head_count_kv", blocks, 4096, 0);
  if (sliding.empty())
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}attention.sliding_window_pattern: missing",
         facts.file.first.string(), facts.prefix);
  leave_out_gguf_prediction(facts, config);
  const auto layers = static_cast<size_t>(config.integer("num_hidden_layers"));
  const double base = facts.number("rope.freq_base").value_or(10000.0),
               local_base = facts.number("rope.freq_base_swa").value_or(base);
  std::vector<std::string> types;
  std::vector<double> bases, parts;
  ConfigDraft other;
  std::string sparse;
  for (size_t i = 0; i < layers; ++i) {
    types.emplace_back(sliding[i] ? "sliding_attention" : "full_attention");
    bases.push_back(sliding[i] ? local_base : base);
    parts.push_back(sliding[i] ? 1.0 : 0.5);  // fixed in llama.cpp's graph
    if (sliding[i]) {
      other.set("num_attention_heads", heads[i]);
      other.set("num_attention_groups", groups[i]);
    } else {
      config.set("num_attention_heads", heads[i]);
      config.set("num_attention_groups", groups[i]);
    }
    if (facts.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i)))
      sparse += (sparse.empty() ? "" : ",") + std::to_string(i);
  }
  if (!config.contains("num_attention_heads"))
    fail(ErrorKind::bad_checkpoint, "{}: no layer has full attention", facts.file.first.string());
  if (!config.contains("head_dim"))
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}attention.key_length: missing", facts.file.first.string(),
         facts.prefix);
  config.set("layer_types", types);
  config.set("rope_theta", bases);
  config.set("partial_rotary_factors", parts);
  config.set("attention_other_setting", other);
  config.set("moe_layers_enum", sparse.c_str());
  config.set("norm_expert_weight", facts.flag("expert_weights_norm").value_or(true));
  config.set("use_head_wise_attn_gate", facts.has_tensor("blk.0.attn_gate.weight"));
  set_limits(facts, config, "swiglu_clamp_exp", "swiglu_limits");
  set_limits(facts, config, "swiglu_clamp_shexp", "swiglu_limits_shared");
  if (!facts.has_tensor("rope_freqs.weight")) return;
  // llama3's scaling of full layers, whose rotated part is the first half of the list.
  auto divisors = gguf_divisors(facts, "rope_freqs.weight", config.integer("head_dim") / 2);
  divisors.resize(divisors.size() / 2);
  ConfigDraft scaling;
  scaling.set("rope_type", "longrope");
  scaling.set("short_factor", divisors);
  scaling.set("long_factor", divisors);
  scaling.set("attention_factor", 1.0);
  scaling.set("factor", 1.0);
  scaling.set("original_max_position_embeddings", config.integer("max_position_embeddings"));
  config.set("rope_scaling", scaling);
  config.set("yarn_only_types", std::vector<std::string>{"full_attention"});
}

void complete_mimo(const GgufFacts& facts, ConfigDraft& config) {
  const auto blocks = config.integer("num_hidden_layers");
  auto sliding = facts.per_layer("attention.sliding_window_pattern", blocks, 1, 0);
  const auto groups = facts.per_layer("attention.head_count_kv", blocks, 4096, 0);
  leave_out_gguf_prediction(facts, config);
  const auto layers = config.integer("num_hidden_layers");
  sliding.resize(static_cast<size_t>(layers));
  for (size_t i = 0; i < sliding.size(); ++i)
    config.set(sliding[i] == 1 ? "swa_num_key_value_heads" : "num_key_value_heads", groups[i]);
  if (!config.contains("num_key_value_heads"))
    fail(ErrorKind::bad_checkpoint, "{}: no layer has full attention", facts.file.first.string());
  config.set("hybrid_layer_pattern", sliding);
  complete_gguf_experts(facts, config);
  // llama.cpp's graph divides by the sum unless the file says otherwise.
  config.set("norm_topk_prob", facts.flag("expert_weights_norm").value_or(true));
  set_gguf_mlp_types(facts, config);
  const auto width = config.integer("head_dim");
  const auto part = facts.integer("rope.dimension_count", 2, width).value_or(width);
  // The product is cut to a whole number.
  config.set("partial_rotary_factor",
             part == width ? 1.0 : (static_cast<double>(part) + 0.5) / static_cast<double>(width));
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  const auto sinks_where = [&](int64_t kind) {
    for (size_t i = 0; i < sliding.size(); ++i)
      if (sliding[i] == kind && facts.has_tensor(fmt::format("blk.{}.attn_sinks.weight", i))) return true;
    return false;
  };
  config.set("add_swa_attention_sink_bias", sinks_where(1));
  config.set("add_full_attention_sink_bias", sinks_where(0));
}

}  // namespace

std::span<const GgufArch> gguf_windowed_experts() {
  static const GgufArch archs[] = {
      {"mellum", "mellum", "MellumForCausalLM", mellum_keys(), mellum_names(), complete_mellum},
      {"laguna", "laguna", "LagunaForCausalLM", laguna_keys(), laguna_names(), complete_laguna},
      {"step35", "step3p5", "Step3p5ForCausalLM", step_keys(), step_names(), complete_step},
      {"mimo2", "mimo_v2_flash", "MiMoV2FlashForCausalLM", mimo_keys(), mimo_names(), complete_mimo}};
  return archs;
}

}  // namespace mlxcel
