// gemma3n, gemma4. Norms are as published (no +1).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "checkpoint/formats/gguf_blocks.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr int64_t kMost = int64_t{1} << 30;

constexpr GgufKey kKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"context_length", "max_position_embeddings", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"attention.head_count", "num_attention_heads", Kind::integer, true},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true},
    {"attention.sliding_window", "sliding_window", Kind::integer, true},
    {"attention.shared_kv_layers", "num_kv_shared_layers", Kind::integer, true},
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input", Kind::integer, true},
};

std::vector<GgufName> with_gemma_rows(std::vector<GgufName> own) {
  own.insert(own.end(),
             {{"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
              {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
              {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
              {"blk.#.inp_gate.weight", "model.layers.#.per_layer_input_gate.weight"},
              {"blk.#.proj.weight", "model.layers.#.per_layer_projection.weight"},
              {"blk.#.post_norm.weight", "model.layers.#.post_per_layer_input_norm.weight"},
              {"blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight"},
              {"blk.#.ffn_norm.weight", "model.layers.#.pre_feedforward_layernorm.weight"},
              {"blk.#.post_ffw_norm.weight", "model.layers.#.post_feedforward_layernorm.weight"}});
  return gguf_llama_names(std::move(own));
}

std::span<const GgufName> gemma3n_names() {
  static const auto names = with_gemma_rows(
      {{"altup_proj.weight", "model.altup_projections.weight", GgufChange::join},
       {"altup_unembd_proj.weight", "model.altup_unembed_projections.weight", GgufChange::join},
       {"blk.#.altup_correct_coef.weight", "model.layers.#.altup.correction_coefs.weight"},
       {"blk.#.altup_correct_scale.weight", "model.layers.#.altup.correct_output_scale"},
       {"blk.#.altup_predict_coef.weight", "model.layers.#.altup.prediction_coefs.weight"},
       {"blk.#.altup_router.weight", "model.layers.#.altup.modality_router.weight"},
       {"blk.#.altup_router_norm.weight", "model.layers.#.altup.router_norm.weight"},
       {"blk.#.laurel_l.weight", "model.layers.#.laurel.linear_left.weight"},
       {"blk.#.laurel_r.weight", "model.layers.#.laurel.linear_right.weight"},
       {"blk.#.laurel_post_norm.weight", "model.layers.#.laurel.post_laurel_norm.weight"}});
  return names;
}

std::span<const GgufName> gemma4_names() {
  static const auto names = with_gemma_rows(
      {{"blk.#.layer_output_scale.weight", "model.layers.#.layer_scalar"},
       {"blk.#.ffn_gate_inp.weight", "model.layers.#.router.proj.weight"},
       {"blk.#.ffn_gate_inp.scale", "model.layers.#.router.scale"},
       {"blk.#.ffn_down_exps.scale", "model.layers.#.router.per_expert_scale"},
       {"blk.#.ffn_gate_up_exps.weight", "model.layers.#.experts.gate_up_proj"},
       {"blk.#.ffn_down_exps.weight", "model.layers.#.experts.down_proj"},
       {"blk.#.pre_ffw_norm_2.weight", "model.layers.#.pre_feedforward_layernorm_2.weight"},
       {"blk.#.post_ffw_norm_1.weight", "model.layers.#.post_feedforward_layernorm_1.weight"},
       {"blk.#.post_ffw_norm_2.weight", "model.layers.#.post_feedforward_layernorm_2.weight"}});
  return names;
}

int rows_of(const GgufFacts& facts, const std::string& name) {
  const auto found = facts.file.tensors.find(name);
  if (found == facts.file.tensors.end() || found->second.shape.empty())
    fail(ErrorKind::bad_checkpoint, "{}: {}: missing", facts.file.first.string(), name);
  return found->second.shape[0];
}

void set_common(const GgufFacts& facts, ConfigDraft& config) {
  config.set("hidden_activation", "gelu_pytorch_tanh");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  set_gguf_layer_types(facts, config, 5);
  if (facts.has_tensor("per_layer_token_embd.weight"))
    config.set("vocab_size_per_layer_input", config.integer("vocab_size"));
}

/// The share of cut values that a multiple of the deviation stands for.
std::vector<double> sparsity(const GgufFacts& facts, int64_t layers) {
  const std::string key = facts.prefix + "activation_sparsity_scale";
  const auto found = facts.file.metadata.find(key);
  std::vector<double> list(static_cast<size_t>(layers), 0.0);
  if (found == facts.file.metadata.end()) return list;
  const auto* whole = std::get_if<GgufArray>(&found->second.value);
  const auto* scales = whole ? std::get_if<std::vector<double>>(whole) : nullptr;
  if (!scales || static_cast<int64_t>(scales->size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}: expected {} numbers", facts.file.first.string(), key,
         layers);
  for (size_t i = 0; i < list.size(); ++i) list[i] = 0.5 * std::erfc(-(*scales)[i] / std::sqrt(2.0));
  return list;
}

void complete_gemma3n(const GgufFacts& facts, ConfigDraft& config) {
  set_common(facts, config);
  const auto layers = config.integer("num_hidden_layers");
  config.set("intermediate_size", facts.per_layer("feed_forward_length", layers, kMost, 0));
  config.set(
      "num_key_value_heads",
      facts.integer("attention.head_count_kv", 1, 1 << 16).value_or(config.integer("num_attention_heads")));
  config.set("head_dim", facts.integer("attention.key_length", 1, 1 << 16).value_or(256));
  config.set("rope_theta", facts.number("rope.freq_base").value_or(1e6));
  config.set("rope_local_base_freq", facts.number("rope.freq_base_swa").value_or(1e4));
  config.set("altup_num_inputs", facts.integer("altup.num_inputs", 2, 16).value_or(4));
  config.set("altup_active_idx", facts.integer("altup.active_idx", 0, 15).value_or(0));
  config.set("laurel_rank", rows_of(facts, "blk.0.laurel_l.weight"));
  config.set("activation_sparsity_pattern", sparsity(facts, layers));
  config.set("final_logit_softcapping", facts.number("final_logit_softcapping").value_or(30.0));
}

/// The divisors of full layers: one for each rotated pair, something huge for the others.
double rotated_share(const GgufFacts& facts, int64_t head_dim) {
  if (!facts.has_tensor("rope_freqs.weight")) return 1.0;
  const auto divisors = gguf_divisors(facts, "rope_freqs.weight", head_dim / 2);
  const auto plain = std::count(divisors.begin(), divisors.end(), 1.0);
  for (size_t i = 0; i < divisors.size(); ++i)
    if ((divisors[i] == 1.0) != (i < static_cast<size_t>(plain)) || (divisors[i] != 1.0 && divisors[i] < 1e9))
      fail(ErrorKind::unsupported,
           "{}: rope_freqs.weight: expected ones, then divisors that stop the rotation",
           facts.file.first.string());
  return static_cast<double>(plain) / static_cast<double>(divisors.size());
}

void complete_gemma4(const GgufFacts& facts, ConfigDraft& config) {
  set_common(facts, config);
  const auto layers = config.integer("num_hidden_layers");
  const auto widths = facts.per_layer("feed_forward_length", layers, kMost, 0);
  config.set("intermediate_size", widths.front());
  config.set("use_double_wide_mlp", widths.back() != widths.front());

  const auto wide = facts.integer("attention.key_length", 1, 1 << 16).value_or(512);
  config.set("head_dim", facts.integer("attention.key_length_swa", 1, 1 << 16).value_or(wide));
  config.set("global_head_dim", wide);
  const auto kv_heads =
      facts.per_layer("attention.head_count_kv", layers, 1 << 16, config.integer("num_attention_heads"));
  const auto sliding = facts.flags("attention.sliding_window_pattern", layers);
  const auto first = std::find(sliding.begin(), sliding.end(), true) - sliding.begin();
  config.set("num_key_value_heads", kv_heads[first < layers ? static_cast<size_t>(first) : 0]);
  ConfigDraft last, by_layer;
  last.set("num_key_value_heads", kv_heads.back());
  last.set("head_dim", wide);
  by_layer.set(std::to_string(layers - 1), last);
  config.set("per_layer_config", by_layer);
  // Full layers that hold no values take the keys for them.
  bool keys_only = false;
  const auto owners = layers - config.integer("num_kv_shared_layers");
  for (int64_t i = 0; i < owners; ++i)
    keys_only = keys_only || !facts.has_tensor(fmt::format("blk.{}.attn_v.weight", i));
  config.set("attention_k_eq_v", keys_only);

  ConfigDraft full, local, ropes;
  full.set("rope_type", "proportional");
  full.set("rope_theta", facts.number("rope.freq_base").value_or(1e6));
  full.set("partial_rotary_factor", rotated_share(facts, wide));
  local.set("rope_type", "default");
  local.set("rope_theta", facts.number("rope.freq_base_swa").value_or(1e4));
  ropes.set("full_attention", full);
  ropes.set("sliding_attention", local);
  config.set("rope_parameters", ropes);
  if (const auto cap = facts.number("final_logit_softcapping"); cap && *cap > 0)
    config.set("final_logit_softcapping", *cap);

  const auto experts = facts.integer("expert_count", 0, 1 << 16).value_or(0);
  if (experts == 0) return;
  const auto used = facts.integer("expert_used_count", 1, 1 << 16),
             width = facts.integer("expert_feed_forward_length", 1, kMost);
  if (!used || !width)
    fail(ErrorKind::bad_checkpoint,
         "{}: GGUF keys {}expert_used_count and expert_feed_forward_length: missing",
         facts.file.first.string(), facts.prefix);
  config.set("enable_moe_block", true);
  config.set("num_experts", experts);
  config.set("top_k_experts", *used);
  config.set("moe_intermediate_size", *width);
}

}  // namespace

std::span<const GgufArch> gguf_late_gemmas() {
  static const GgufArch archs[] = {
      {"gemma3n", "gemma3n_text", "Gemma3nForCausalLM", kKeys, gemma3n_names(), complete_gemma3n},
      {"gemma4", "gemma4_text", "Gemma4ForCausalLM", kKeys, gemma4_names(), complete_gemma4}};
  return archs;
}

}  // namespace mlxcel
