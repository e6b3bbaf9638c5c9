// Families with experts under names of their own: olmoe, granitemoe, afmoe, minimax-m2, hunyuan-moe.
#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

std::vector<GgufKey> with_decoder_keys(std::vector<GgufKey> own) {
  const auto keys = gguf_decoder_keys();
  own.insert(own.end(), keys.begin(), keys.end());
  return own;
}

std::span<const GgufKey> olmoe_keys() {
  static const auto keys =
      with_decoder_keys({{"expert_count", "num_experts", Kind::integer, true},
                         {"expert_used_count", "num_experts_per_tok", Kind::integer, true}});
  return keys;
}

std::span<const GgufKey> local_keys() {
  static const auto keys =
      with_decoder_keys({{"expert_count", "num_local_experts", Kind::integer, true},
                         {"expert_used_count", "num_experts_per_tok", Kind::integer, true}});
  return keys;
}

std::span<const GgufKey> afmoe_keys() {
  static const auto keys =
      with_decoder_keys({{"expert_count", "num_experts", Kind::integer, true},
                         {"expert_used_count", "num_experts_per_tok", Kind::integer, true},
                         {"expert_feed_forward_length", "moe_intermediate_size", Kind::integer, true},
                         {"expert_shared_count", "num_shared_experts"},
                         {"leading_dense_block_count", "num_dense_layers"},
                         {"expert_weights_scale", "route_scale", Kind::number},
                         {"attention.sliding_window", "sliding_window", Kind::integer, true}});
  return keys;
}

std::span<const GgufKey> hunyuan_keys() {
  static const auto keys = with_decoder_keys({{"expert_count", "num_experts", Kind::integer, true},
                                              {"expert_used_count", "moe_topk", Kind::integer, true},
                                              {"expert_feed_forward_length", "moe_intermediate_size"},
                                              {"expert_shared_count", "num_shared_expert"}});
  return keys;
}

std::span<const GgufName> olmoe_names() {
  static const auto names =
      gguf_llama_names({{"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.weight"},
                        {"blk.#.ffn_gate_exps.weight", "model.layers.#.mlp.switch_mlp.gate_proj.weight"},
                        {"blk.#.ffn_up_exps.weight", "model.layers.#.mlp.switch_mlp.up_proj.weight"},
                        {"blk.#.ffn_down_exps.weight", "model.layers.#.mlp.switch_mlp.down_proj.weight"}});
  return names;
}

std::vector<GgufName> block_sparse(const char* router, bool permuted) {
  return gguf_llama_names(
      {{"blk.#.ffn_gate_inp.weight", router},
       {"blk.#.exp_probs_b.bias", "model.layers.#.block_sparse_moe.e_score_correction_bias"},
       {"blk.#.ffn_gate_exps.weight", "model.layers.#.block_sparse_moe.switch_mlp.gate_proj.weight"},
       {"blk.#.ffn_up_exps.weight", "model.layers.#.block_sparse_moe.switch_mlp.up_proj.weight"},
       {"blk.#.ffn_down_exps.weight", "model.layers.#.block_sparse_moe.switch_mlp.down_proj.weight"}},
      permuted);
}

std::span<const GgufName> granitemoe_names() {
  static const auto names = block_sparse("model.layers.#.block_sparse_moe.router.layer.weight", true);
  return names;
}

std::span<const GgufName> minimax_names() {
  static const auto names = block_sparse("model.layers.#.block_sparse_moe.gate.weight", false);
  return names;
}

std::span<const GgufName> afmoe_names() {
  static const auto names = gguf_llama_names(
      {{"blk.#.attn_gate.weight", "model.layers.#.self_attn.gate_proj.weight"},
       {"blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight"},
       {"blk.#.ffn_norm.weight", "model.layers.#.pre_mlp_layernorm.weight"},
       {"blk.#.post_ffw_norm.weight", "model.layers.#.post_mlp_layernorm.weight"},
       {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.router.gate.weight"},
       {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.expert_bias"},
       {"blk.#.ffn_gate_exps.weight", "model.layers.#.mlp.switch_mlp.gate_proj.weight"},
       {"blk.#.ffn_up_exps.weight", "model.layers.#.mlp.switch_mlp.up_proj.weight"},
       {"blk.#.ffn_down_exps.weight", "model.layers.#.mlp.switch_mlp.down_proj.weight"},
       {"blk.#.ffn_gate_shexp.weight", "model.layers.#.mlp.shared_experts.gate_proj.weight"},
       {"blk.#.ffn_up_shexp.weight", "model.layers.#.mlp.shared_experts.up_proj.weight"},
       {"blk.#.ffn_down_shexp.weight", "model.layers.#.mlp.shared_experts.down_proj.weight"}});
  return names;
}

std::span<const GgufName> hunyuan_names() {
  static const auto names =
      gguf_llama_names({{"blk.#.attn_q_norm.weight", "model.layers.#.self_attn.query_layernorm.weight"},
                        {"blk.#.attn_k_norm.weight", "model.layers.#.self_attn.key_layernorm.weight"},
                        {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.wg.weight"},
                        {"blk.#.ffn_gate_exps.weight", "model.layers.#.mlp.switch_mlp.gate_proj.weight"},
                        {"blk.#.ffn_up_exps.weight", "model.layers.#.mlp.switch_mlp.up_proj.weight"},
                        {"blk.#.ffn_down_exps.weight", "model.layers.#.mlp.switch_mlp.down_proj.weight"},
                        {"blk.#.ffn_gate_shexp.weight", "model.layers.#.mlp.shared_mlp.gate_proj.weight"},
                        {"blk.#.ffn_up_shexp.weight", "model.layers.#.mlp.shared_mlp.up_proj.weight"},
                        {"blk.#.ffn_down_shexp.weight", "model.layers.#.mlp.shared_mlp.down_proj.weight"}});
  return names;
}

void complete_plain(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_act", "silu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
}

void complete_olmoe(const GgufFacts& facts, ConfigDraft& config) {
  complete_plain(facts, config);
  config.set("norm_topk_prob", false);  // fixed in llama.cpp's graph
}

void complete_granitemoe(const GgufFacts& facts, ConfigDraft& config) {
  if (facts.integer("expert_shared_feed_forward_length", 0, int64_t{1} << 30).value_or(0) > 0)
    fail(ErrorKind::unsupported, "{}: granitemoe with a shared expert is not mapped",
         facts.file.first.string());
  complete_plain(facts, config);
  config.set("embedding_multiplier", facts.number("embedding_scale").value_or(1.0));
  config.set("attention_multiplier", facts.number("attention.scale").value_or(1.0));
  config.set("residual_multiplier", facts.number("residual_scale").value_or(1.0));
  config.set("logits_scaling", facts.number("logit_scale").value_or(1.0));
}

void complete_minimax(const GgufFacts& facts, ConfigDraft& config) {
  complete_plain(facts, config);
  if (const auto width = facts.integer("expert_feed_forward_length", 1, int64_t{1} << 30))
    config.set("intermediate_size", *width);
  config.set("rotary_dim",
             facts.integer("rope.dimension_count", 2, 1 << 16).value_or(config.integer("head_dim")));
  config.erase("partial_rotary_factor");
}

void complete_afmoe(const GgufFacts& facts, ConfigDraft& config) {
  complete_plain(facts, config);
  // The format has no keys for these: llama.cpp's graph has them fixed.
  config.set("global_attn_every_n_layers", 4);
  config.set("mup_enabled", true);
}

}  // namespace

std::span<const GgufArch> gguf_experts_otherwise() {
  static const GgufArch archs[] = {
      {"olmoe", "olmoe", "OlmoeForCausalLM", olmoe_keys(), olmoe_names(), complete_olmoe},
      {"granitemoe", "granitemoe", "GraniteMoeForCausalLM", local_keys(), granitemoe_names(),
       complete_granitemoe},
      {"minimax-m2", "minimax_m2", "MiniMaxM2ForCausalLM", local_keys(), minimax_names(), complete_minimax},
      {"hunyuan-moe", "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", hunyuan_keys(), hunyuan_names(),
       complete_plain},
      {"afmoe", "afmoe", "AfmoeForCausalLM", afmoe_keys(), afmoe_names(), complete_afmoe}};
  return archs;
}

}  // namespace mlxcel
