// Families with experts under names of their own: olmoe, granitemoe, afmoe, minimax-m2, minimax-m3,
// hunyuan-moe.
#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

std::vector<GgufKey> with_decoder_keys(std::vector<GgufKey> own) {
  return std::move(own) + gguf_decoder_keys();
}

constexpr const char* kBank = "model.layers.#.mlp.switch_mlp";

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
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.weight"}} +
      gguf_unit("_exps", kBank));
  return names;
}

std::vector<GgufName> block_sparse(const char* router, bool permuted) {
  return gguf_llama_names(std::vector<GgufName>{{"blk.#.ffn_gate_inp.weight", router},
                                                {"blk.#.exp_probs_b.bias",
                                                 "model.layers.#.block_sparse_moe.e_score_correction_bias"}} +
                              gguf_unit("_exps", "model.layers.#.block_sparse_moe.switch_mlp"),
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

constexpr GgufChange kLessOne = GgufChange::minus_one;

std::span<const GgufName> minimax_m3_names() {
  static const auto names =
      std::vector<GgufName>{
          {"output_norm.weight", "model.norm.weight", kLessOne},
          {"blk.#.attn_norm.weight", "model.layers.#.input_layernorm.weight", kLessOne},
          {"blk.#.ffn_norm.weight", "model.layers.#.post_attention_layernorm.weight", kLessOne},
          {"blk.#.attn_q_norm.weight", "model.layers.#.self_attn.q_norm.weight", kLessOne},
          {"blk.#.attn_k_norm.weight", "model.layers.#.self_attn.k_norm.weight", kLessOne},
          {"blk.#.indexer.q_norm.weight", "model.layers.#.self_attn.index_q_norm.weight", kLessOne},
          {"blk.#.indexer.k_norm.weight", "model.layers.#.self_attn.index_k_norm.weight", kLessOne},
          {"blk.#.indexer.q_proj.weight", "model.layers.#.self_attn.index_q_proj.weight"},
          {"blk.#.indexer.k_proj.weight", "model.layers.#.self_attn.index_k_proj.weight"}} +
      gguf_unit("_shexp", "model.layers.#.block_sparse_moe.shared_experts") +
      block_sparse("model.layers.#.block_sparse_moe.gate.weight", false);
  return names;
}

std::span<const GgufName> afmoe_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{
          {"blk.#.attn_gate.weight", "model.layers.#.self_attn.gate_proj.weight"},
          {"blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight"},
          {"blk.#.ffn_norm.weight", "model.layers.#.pre_mlp_layernorm.weight"},
          {"blk.#.post_ffw_norm.weight", "model.layers.#.post_mlp_layernorm.weight"},
          {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.router.gate.weight"},
          {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.expert_bias"}} +
      gguf_unit("_exps", kBank) + gguf_unit("_shexp", "model.layers.#.mlp.shared_experts"));
  return names;
}

std::span<const GgufName> hunyuan_names() {
  static const auto names = gguf_llama_names(
      std::vector<GgufName>{{"blk.#.attn_q_norm.weight", "model.layers.#.self_attn.query_layernorm.weight"},
                            {"blk.#.attn_k_norm.weight", "model.layers.#.self_attn.key_layernorm.weight"},
                            {"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.wg.weight"}} +
      gguf_unit("_exps", kBank) + gguf_unit("_shexp", "model.layers.#.mlp.shared_mlp"));
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

void complete_minimax_m3(const GgufFacts& facts, ConfigDraft& config) {
  const auto dense = config.contains("intermediate_size") ? config.integer("intermediate_size") : 0;
  complete_minimax(facts, config);
  config.set("dense_intermediate_size", dense);
  config.set("routed_scaling_factor", facts.number("expert_weights_scale").value_or(1.0));
  config.set("swiglu_alpha", 1.702);  // fixed in llama.cpp's graph, as the limit
  config.set("swiglu_limit", 7.0);
  std::vector<std::string> types;
  const auto layers = config.integer("num_hidden_layers");
  for (int64_t i = 0; i < layers; ++i)
    types.emplace_back(facts.has_tensor(fmt::format("blk.{}.indexer.q_proj.weight", i)) ? "minimax_m3_sparse"
                                                                                        : "full_attention");
  config.set("layer_types", types);
  set_gguf_mlp_types(facts, config);
  constexpr std::pair<const char*, const char*> index[] = {
      {"attention.indexer.head_count", "index_n_heads"},
      {"attention.indexer.key_length", "index_head_dim"},
      {"attention.indexer.block_size", "index_block_size"},
      {"attention.indexer.top_k", "index_topk_blocks"},
      {"attention.indexer.local_blocks", "index_local_blocks"}};
  for (const auto& [gguf, hf] : index)
    if (const auto value = facts.integer(gguf, 0, 1 << 20)) config.set(hf, *value);
  for (const auto& [name, tensor] : facts.file.tensors)
    if (name.ends_with(".ffn_up_shexp.weight")) {
      config.set("shared_intermediate_size", tensor.shape[0]);
      break;
    }
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
      {"minimax-m3", "minimax_m3", "MiniMaxM3SparseForConditionalGeneration", local_keys(),
       minimax_m3_names(), complete_minimax_m3},
      {"hunyuan-moe", "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", hunyuan_keys(), hunyuan_names(),
       complete_plain},
      {"afmoe", "afmoe", "AfmoeForCausalLM", afmoe_keys(), afmoe_names(), complete_afmoe}};
  return archs;
}

}  // namespace mlxcel
