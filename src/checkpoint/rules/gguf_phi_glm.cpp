// phi3, phimoe, phi2, glm4, chatglm: gate and up (phi3 also q, k and v) stay in one matrix, as published.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

std::span<const GgufName> phi3_names() {
  static const auto names =
      gguf_llama_names({{"rope_factors_long.weight", ""},
                        {"rope_factors_short.weight", ""},
                        {"blk.#.attn_qkv.weight", "model.layers.#.self_attn.qkv_proj.weight"},
                        {"blk.#.ffn_up.weight", "model.layers.#.mlp.gate_up_proj.weight"}});
  return names;
}

std::span<const GgufName> phimoe_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"rope_factors_long.weight", ""},
                            {"rope_factors_short.weight", ""},
                            {"blk.#.ffn_gate_inp.weight", "model.layers.#.block_sparse_moe.gate.weight"}} +
      gguf_unit("_exps", "model.layers.#.block_sparse_moe.switch_mlp"));
  return names;
}

std::span<const GgufKey> phimoe_keys() {
  static const auto keys =
      std::vector<GgufKey>{{"expert_count", "num_local_experts", GgufKey::Kind::integer, true},
                           {"expert_used_count", "num_experts_per_tok", GgufKey::Kind::integer, true}} +
      gguf_decoder_keys();
  return keys;
}

std::span<const GgufName> phi2_names() {
  static const auto names = gguf_llama_names({{"output_norm.*", "model.final_layernorm.*"},
                                              {"blk.#.attn_output.*", "model.layers.#.self_attn.dense.*"},
                                              {"blk.#.ffn_up.*", "model.layers.#.mlp.fc1.*"},
                                              {"blk.#.ffn_down.*", "model.layers.#.mlp.fc2.*"}});
  return names;
}

std::span<const GgufName> chatglm_names() {
  static const auto names =
      gguf_llama_names({{"blk.#.ffn_up.weight", "model.layers.#.mlp.gate_up_proj.weight"}});
  return names;
}

std::span<const GgufName> glm4_names() {
  static const auto names = gguf_llama_names(
      {{"blk.#.post_attention_norm.weight", "model.layers.#.post_self_attn_layernorm.weight"},
       {"blk.#.post_ffw_norm.weight", "model.layers.#.post_mlp_layernorm.weight"},
       {"blk.#.ffn_up.weight", "model.layers.#.mlp.gate_up_proj.weight"}});
  return names;
}

void complete_phi3(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_act", "silu");
  if (const auto window = facts.integer("attention.sliding_window", 0, int64_t{1} << 30);
      window && *window > 0)
    config.set("sliding_window", *window);
  const bool longer = facts.has_tensor("rope_factors_long.weight"),
             shorter = facts.has_tensor("rope_factors_short.weight");
  if (!longer && !shorter) return;
  const std::string path = facts.file.first.string();
  const auto original = facts.integer("rope.scaling.original_context_length", 1, int64_t{1} << 30);
  if (!longer || !shorter || !original)
    fail(ErrorKind::bad_checkpoint,
         "{}: longrope needs rope_factors_long.weight, rope_factors_short.weight and {}rope.scaling."
         "original_context_length",
         path, facts.prefix);
  const auto width = config.integer("head_dim");
  const auto half = facts.integer("rope.dimension_count", 2, int64_t{1} << 20).value_or(width) / 2;
  ConfigDraft scaling;
  scaling.set("rope_type", "longrope");
  scaling.set("short_factor", gguf_divisors(facts, "rope_factors_short.weight", half));
  scaling.set("long_factor", gguf_divisors(facts, "rope_factors_long.weight", half));
  if (const auto factor = facts.number("rope.scaling.attn_factor")) scaling.set("attention_factor", *factor);
  config.set("rope_scaling", scaling);
  config.set("original_max_position_embeddings", *original);
}

void complete_phimoe(const GgufFacts& facts, ConfigDraft& config) {
  complete_phi3(facts, config);
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  config.set("lm_head_bias", facts.has_tensor("output.bias"));
}

void complete_phi2(const GgufFacts& facts, ConfigDraft& config) {
  if (facts.has_tensor("blk.0.attn_qkv.weight"))
    fail(ErrorKind::unsupported, "{}: phi2 with q, k and v in one matrix (an early converter) is not mapped",
         facts.file.first.string());
  complete_gguf_rope(facts, config);
  require_gguf_number(facts, config, "attention.layer_norm_epsilon", "layer_norm_eps");
  config.set("hidden_act", "gelu_new");
  // The file's numbers are those of Phi-2 itself, whatever the matrices are.
  if (const auto width = facts.rows("blk.0.ffn_up.weight")) config.set("intermediate_size", *width);
  if (const auto keys = facts.rows("blk.0.attn_k.weight"))
    config.set("num_key_value_heads", *keys / std::max<int64_t>(1, config.integer("head_dim")));
  if (!config.contains("partial_rotary_factor")) config.set("partial_rotary_factor", 1.0);
}

void complete_glm4(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_act", "silu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  if (!config.contains("partial_rotary_factor")) config.set("partial_rotary_factor", 1.0);
}

}  // namespace

std::span<const GgufArch> gguf_phis_and_glms() {
  static const GgufArch archs[] = {
      {"phi3", "phi3", "Phi3ForCausalLM", gguf_decoder_keys(), phi3_names(), complete_phi3},
      {"phimoe", "phimoe", "PhimoeForCausalLM", phimoe_keys(), phimoe_names(), complete_phimoe},
      {"phi2", "phi", "PhiForCausalLM", gguf_size_keys(), phi2_names(), complete_phi2},
      {"chatglm", "glm", "GlmForCausalLM", gguf_decoder_keys(), chatglm_names(), complete_glm4},
      {"glm4", "glm4", "Glm4ForCausalLM", gguf_decoder_keys(), glm4_names(), complete_glm4}};
  return archs;
}

}  // namespace mlxcel
