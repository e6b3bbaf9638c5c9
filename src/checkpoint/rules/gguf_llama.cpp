// llama: Llama, Mistral, SmolLM, Mixtral; llama-embed, which sees both ways. q and k rows are stored for
// adjacent-pair rotation.

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

std::span<const GgufName> names() {
  static const auto rows = gguf_llama_names(
      std::vector<GgufName>{
          {"blk.#.ffn_gate_inp.weight", "model.layers.#.block_sparse_moe.gate.weight"},
          // Experts one by one, as early converters left them.
          {"blk.#.ffn_gate.#.weight", "model.layers.#.block_sparse_moe.experts.#.w1.weight"},
          {"blk.#.ffn_down.#.weight", "model.layers.#.block_sparse_moe.experts.#.w2.weight"},
          {"blk.#.ffn_up.#.weight", "model.layers.#.block_sparse_moe.experts.#.w3.weight"}} +
          gguf_unit("_exps", "model.layers.#.block_sparse_moe.switch_mlp"),
      true);
  return rows;
}

void complete(const GgufFacts& facts, ConfigDraft& config) {
  if (const auto experts = facts.integer("expert_count", 0, 1 << 16).value_or(0); experts > 0) {
    config.set("model_type", "mixtral");
    config.set("architectures", std::vector<std::string>{"MixtralForCausalLM"});
    config.set("num_local_experts", experts);
    config.set("num_experts_per_tok", facts.integer("expert_used_count", 1, experts).value_or(2));
  }
  complete_gguf_rope(facts, config);
  config.set("hidden_act", "silu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  config.set("mlp_bias", facts.has_tensor("blk.0.ffn_gate.bias"));
}

}  // namespace

std::span<const GgufArch> gguf_llamas() {
  static const GgufArch archs[] = {
      {"llama", "llama", "LlamaForCausalLM", gguf_decoder_keys(), names(), complete},
      {"llama-embed", "llama_bidirec", "LlamaBidirectionalModel", gguf_decoder_keys(), names(), complete}};
  return archs;
}

}  // namespace mlxcel
