// qwen2, qwen3, qwen3moe. Experts arrive stacked, under the names that parts ask for.

#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

std::span<const GgufName> names() {
  static const auto rows = gguf_llama_names(
      std::vector<GgufName>{{"blk.#.ffn_gate_inp.weight", "model.layers.#.mlp.gate.weight"}} +
      gguf_unit("_exps", "model.layers.#.mlp.switch_mlp"));
  return rows;
}

void complete_qwen2(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_act", "silu");
  config.set("use_sliding_window", false);
}

void complete_qwen3(const GgufFacts& facts, ConfigDraft& config) {
  complete_qwen2(facts, config);
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
}

void complete_qwen3moe(const GgufFacts& facts, ConfigDraft& config) {
  complete_qwen3(facts, config);
  config.set("decoder_sparse_step", 1);
  config.set("mlp_only_layers", std::vector<double>{});
  config.set("norm_topk_prob", true);  // fixed for this architecture in llama.cpp's graph
}

// The shared decoder keys and the experts' own.
constexpr GgufKey kExpertKeys[] = {
    {"expert_count", "num_experts", GgufKey::Kind::integer, true},
    {"expert_used_count", "num_experts_per_tok", GgufKey::Kind::integer, true},
    {"expert_feed_forward_length", "moe_intermediate_size", GgufKey::Kind::integer, true},
};

std::span<const GgufKey> moe_keys() {
  static const auto keys =
      std::vector<GgufKey>(std::begin(kExpertKeys), std::end(kExpertKeys)) + gguf_decoder_keys();
  return keys;
}

}  // namespace

const GgufArch& gguf_qwen2() {
  static const GgufArch arch{"qwen2", "qwen2",       "Qwen2ForCausalLM", gguf_decoder_keys(),
                             names(), complete_qwen2};
  return arch;
}

const GgufArch& gguf_qwen3() {
  static const GgufArch arch{"qwen3", "qwen3",       "Qwen3ForCausalLM", gguf_decoder_keys(),
                             names(), complete_qwen3};
  return arch;
}

const GgufArch& gguf_qwen3vlmoe() {
  static const GgufArch arch{"qwen3vlmoe", "qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration",
                             moe_keys(),   names(),        complete_qwen3moe};
  return arch;
}

const GgufArch& gguf_qwen3moe() {
  static const GgufArch arch{"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM",
                             moe_keys(), names(),     complete_qwen3moe};
  return arch;
}

}  // namespace mlxcel
