// lfm2, lfm2moe. Layers without keys are convolutions: head_count_kv is a list with zeros for them.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr GgufKey kKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"context_length", "max_position_embeddings", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"feed_forward_length", "intermediate_size", Kind::integer, true},
    {"attention.head_count", "num_attention_heads", Kind::integer, true},
    {"attention.layer_norm_rms_epsilon", "norm_eps", Kind::number, true},
    {"rope.freq_base", "rope_theta", Kind::number},
    {"shortconv.l_cache", "conv_L_cache", Kind::integer, true},
};

std::span<const GgufName> names() {
  static const auto rows =
      std::vector<GgufName>{
          {"token_embd.weight", "model.embed_tokens.weight"},
          {"token_embd_norm.weight", "model.embedding_norm.weight"},
          {"output_norm.weight", "model.embedding_norm.weight"},
          {"output.weight", "lm_head.weight"},
          {"blk.#.attn_norm.weight", "model.layers.#.operator_norm.weight"},
          {"blk.#.ffn_norm.weight", "model.layers.#.ffn_norm.weight"},
          {"blk.#.attn_q_norm.weight", "model.layers.#.self_attn.q_layernorm.weight"},
          {"blk.#.attn_k_norm.weight", "model.layers.#.self_attn.k_layernorm.weight"},
          {"blk.#.attn_q.weight", "model.layers.#.self_attn.q_proj.weight"},
          {"blk.#.attn_k.weight", "model.layers.#.self_attn.k_proj.weight"},
          {"blk.#.attn_v.weight", "model.layers.#.self_attn.v_proj.weight"},
          {"blk.#.attn_output.weight", "model.layers.#.self_attn.out_proj.weight"},
          {"blk.#.shortconv.in_proj.*", "model.layers.#.conv.in_proj.*"},
          {"blk.#.shortconv.out_proj.*", "model.layers.#.conv.out_proj.*"},
          {"blk.#.shortconv.conv.*", "model.layers.#.conv.conv.*"},
          {"blk.#.ffn_gate_inp.weight", "model.layers.#.feed_forward.gate.weight"},
          {"blk.#.exp_probs_b.bias", "model.layers.#.feed_forward.expert_bias"},
      } +
      gguf_unit("", "model.layers.#.feed_forward", {"w1", "w3", "w2"}) +
      gguf_unit("_exps", "model.layers.#.feed_forward.switch_mlp");
  return rows;
}

void complete(const GgufFacts& facts, ConfigDraft& config) {
  const auto layers = config.integer("num_hidden_layers");
  const auto heads = facts.per_layer("attention.head_count_kv", layers, 1 << 20, 0);
  const auto most = *std::max_element(heads.begin(), heads.end());
  std::vector<std::string> kinds;
  for (const auto n : heads) {
    kinds.push_back(n > 0 ? "full_attention" : "conv");
    if (n != 0 && n != most)
      fail(ErrorKind::unsupported,
           "{}: GGUF key {}attention.head_count_kv: differs between layers with attention",
           facts.file.first.string(), facts.prefix);
  }
  config.set("num_key_value_heads", std::max<int64_t>(most, 1));
  config.set("layer_types", kinds);
  config.set("block_auto_adjust_ff_dim", false);  // the width as it is
  config.set("conv_bias", facts.has_tensor("blk.0.shortconv.in_proj.bias"));
}

void complete_sparse(const GgufFacts& facts, ConfigDraft& config) {
  complete(facts, config);
  const auto experts = facts.integer("expert_count", 1, 1 << 16),
             used = facts.integer("expert_used_count", 1, 1 << 16);
  if (!experts || !used)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF keys {}expert_count and expert_used_count: missing",
         facts.file.first.string(), facts.prefix);
  config.set("num_experts", *experts);
  config.set("num_experts_per_tok", *used);
  config.set("num_dense_layers", facts.integer("leading_dense_block_count", 0, 4096).value_or(0));
  if (const auto width = facts.integer("expert_feed_forward_length", 1, int64_t{1} << 30))
    config.set("moe_intermediate_size", *width);
  complete_gguf_experts(facts, config);
  config.set("norm_topk_prob", true);  // fixed in llama.cpp's graph
  const auto last = config.integer("num_hidden_layers") - 1;
  config.set("use_expert_bias", facts.has_tensor(fmt::format("blk.{}.exp_probs_b.bias", last)));
}

}  // namespace

std::span<const GgufArch> gguf_lfm2s() {
  static const GgufArch archs[] = {
      {"lfm2", "lfm2", "Lfm2ForCausalLM", kKeys, names(), complete},
      {"lfm2moe", "lfm2_moe", "Lfm2MoeForCausalLM", kKeys, names(), complete_sparse}};
  return archs;
}

}  // namespace mlxcel
