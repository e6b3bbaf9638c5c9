// deepseek4: DeepSeek-V4, whose keys are pooled behind a window and whose layers read and write several
// streams. Names are the publisher's own; experts arrive stacked.
#include <variant>
#include <vector>

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr GgufKey kKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"context_length", "max_position_embeddings", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"attention.head_count", "num_attention_heads", Kind::integer, true},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim", Kind::integer, true},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true},
    {"attention.q_lora_rank", "q_lora_rank", Kind::integer, true},
    {"attention.sliding_window", "sliding_window", Kind::integer, true},
    {"attention.output_group_count", "o_groups", Kind::integer, true},
    {"attention.output_lora_rank", "o_lora_rank", Kind::integer, true},
    {"attention.indexer.head_count", "index_n_heads", Kind::integer, true},
    {"attention.indexer.key_length", "index_head_dim", Kind::integer, true},
    {"attention.indexer.top_k", "index_topk", Kind::integer, true},
    {"attention.compress_rope_freq_base", "compress_rope_theta", Kind::number, true},
    {"rope.dimension_count", "qk_rope_head_dim", Kind::integer, true},
    {"rope.freq_base", "rope_theta", Kind::number},
    {"hyper_connection.count", "hc_mult", Kind::integer, true},
    {"hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters", Kind::integer, true},
    {"hyper_connection.epsilon", "hc_eps", Kind::number, true},
    {"hash_layer_count", "num_hash_layers", Kind::integer, true},
    {"expert_count", "n_routed_experts", Kind::integer, true},
    {"expert_used_count", "num_experts_per_tok", Kind::integer, true},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
};

std::span<const GgufName> names() {
  static const auto rows =
      std::vector<GgufName>{
          {"token_embd.weight", "model.embed_tokens.weight"},
          {"output_norm.weight", "model.norm.weight"},
          {"output.weight", "lm_head.weight"},
          {"output_hc_fn.weight", "hc_head_fn"},
          {"output_hc_base.weight", "hc_head_base"},
          {"output_hc_scale.weight", "hc_head_scale"},
          {"blk.#.hc_attn_fn.weight", "layers.#.hc_attn_fn"},
          {"blk.#.hc_attn_base.weight", "layers.#.hc_attn_base"},
          {"blk.#.hc_attn_scale.weight", "layers.#.hc_attn_scale"},
          {"blk.#.hc_ffn_fn.weight", "layers.#.hc_ffn_fn"},
          {"blk.#.hc_ffn_base.weight", "layers.#.hc_ffn_base"},
          {"blk.#.hc_ffn_scale.weight", "layers.#.hc_ffn_scale"},
          {"blk.#.attn_norm.weight", "layers.#.attn_norm.weight"},
          {"blk.#.ffn_norm.weight", "layers.#.ffn_norm.weight"},
          {"blk.#.attn_sinks.weight", "layers.#.attn.attn_sink"},
          {"blk.#.attn_q_a.weight", "layers.#.attn.wq_a.weight"},
          {"blk.#.attn_q_b.weight", "layers.#.attn.wq_b.weight"},
          {"blk.#.attn_q_a_norm.weight", "layers.#.attn.q_norm.weight"},
          {"blk.#.attn_kv.weight", "layers.#.attn.wkv.weight"},
          {"blk.#.attn_kv_a_norm.weight", "layers.#.attn.kv_norm.weight"},
          {"blk.#.attn_output_a.weight", "layers.#.attn.wo_a.weight"},
          {"blk.#.attn_output_b.weight", "layers.#.attn.wo_b.weight"},
          {"blk.#.attn_compressor_ape.weight", "layers.#.attn.compressor.ape"},
          {"blk.#.attn_compressor_kv.weight", "layers.#.attn.compressor.wkv.weight"},
          {"blk.#.attn_compressor_gate.weight", "layers.#.attn.compressor.wgate.weight"},
          {"blk.#.attn_compressor_norm.weight", "layers.#.attn.compressor.norm.weight"},
          {"blk.#.indexer.attn_q_b.weight", "layers.#.attn.indexer.wq_b.weight"},
          {"blk.#.indexer.proj.weight", "layers.#.attn.indexer.weights_proj.weight"},
          {"blk.#.indexer_compressor_ape.weight", "layers.#.attn.indexer.compressor.ape"},
          {"blk.#.indexer_compressor_kv.weight", "layers.#.attn.indexer.compressor.wkv.weight"},
          {"blk.#.indexer_compressor_gate.weight", "layers.#.attn.indexer.compressor.wgate.weight"},
          {"blk.#.indexer_compressor_norm.weight", "layers.#.attn.indexer.compressor.norm.weight"},
          {"blk.#.ffn_gate_inp.weight", "layers.#.ffn.gate.weight"},
          {"blk.#.exp_probs_b.bias", "layers.#.ffn.gate.bias"},
          {"blk.#.exp_probs_b_vl.bias", ""},  // of image tokens
          {"blk.#.ffn_gate_tid2eid.weight", "layers.#.ffn.gate.tid2eid"}} +
      gguf_unit("_exps", "model.layers.#.mlp.switch_mlp") +
      gguf_unit("_shexp", "model.layers.#.mlp.shared_experts");
  return rows;
}

/// One limit for all layers: the model has no other.
void set_limit(const GgufFacts& facts, ConfigDraft& config, int64_t layers) {
  const auto limits = facts.numbers("swiglu_clamp_exp", layers);
  if (limits.empty()) return;
  for (const char* key : {"swiglu_clamp_exp", "swiglu_clamp_shexp"})
    for (const double limit : facts.numbers(key, layers))
      if (limit != limits.front())
        fail(ErrorKind::unsupported, "{}: GGUF key {}{}: differs between layers, which is not supported",
             facts.file.first.string(), facts.prefix, key);
  config.set("swiglu_limit", limits.front());
}

/// Runs of pooled keys by layer; the list may go on to layers of next-token prediction.
std::vector<int64_t> ratios(const GgufFacts& facts, int64_t layers) {
  const auto found = facts.file.metadata.find(facts.prefix + "attention.compress_ratios");
  const auto* list =
      found == facts.file.metadata.end() ? nullptr : std::get_if<GgufArray>(&found->second.value);
  const auto* numbers = list ? std::get_if<std::vector<int64_t>>(list) : nullptr;
  if (!numbers || static_cast<int64_t>(numbers->size()) < layers)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}attention.compress_ratios: expected {} integers",
         facts.file.first.string(), facts.prefix, layers);
  return {numbers->begin(), numbers->begin() + layers};
}

void complete(const GgufFacts& facts, ConfigDraft& config) {
  leave_out_gguf_prediction(facts, config);
  const auto layers = config.integer("num_hidden_layers");
  complete_gguf_experts(facts, config);
  set_limit(facts, config, layers);
  const auto scores = facts.integer("expert_gating_func", 1, 4).value_or(4);
  config.set("scoring_func", scores == 1 ? "softmax" : scores == 2 ? "sigmoid" : "sqrtsoftplus");
  config.set("hidden_act", "silu");
  config.set("compress_ratios", ratios(facts, layers));
  if (const auto scaling = gguf_rope_scaling(facts, config.integer("max_position_embeddings"));
      !scaling.empty())
    config.set("rope_scaling", scaling);
}

}  // namespace

std::span<const GgufArch> gguf_pooled() {
  static const GgufArch archs[] = {
      {"deepseek4", "deepseek_v4", "DeepseekV4ForCausalLM", kKeys, names(), complete}};
  return archs;
}

}  // namespace mlxcel
