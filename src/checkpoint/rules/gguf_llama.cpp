// llama: Llama, Mistral, SmolLM, Mixtral. q and k rows are stored for adjacent-pair rotation.

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

constexpr GgufName kNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"rope_freqs.weight", ""},
    {"blk.#.attn_rot_embd", ""},
    {"blk.#.attn_norm.weight", "model.layers.#.input_layernorm.weight"},
    {"blk.#.attn_q.weight", "model.layers.#.self_attn.q_proj.weight", GgufChange::unpermute_q},
    {"blk.#.attn_q.bias", "model.layers.#.self_attn.q_proj.bias", GgufChange::unpermute_q},
    {"blk.#.attn_k.weight", "model.layers.#.self_attn.k_proj.weight", GgufChange::unpermute_k},
    {"blk.#.attn_k.bias", "model.layers.#.self_attn.k_proj.bias", GgufChange::unpermute_k},
    {"blk.#.attn_v.*", "model.layers.#.self_attn.v_proj.*"},
    {"blk.#.attn_output.*", "model.layers.#.self_attn.o_proj.*"},
    {"blk.#.ffn_norm.weight", "model.layers.#.post_attention_layernorm.weight"},
    {"blk.#.ffn_gate_inp.weight", "model.layers.#.block_sparse_moe.gate.weight"},
    {"blk.#.ffn_gate_exps.weight", "model.layers.#.block_sparse_moe.switch_mlp.gate_proj.weight"},
    {"blk.#.ffn_up_exps.weight", "model.layers.#.block_sparse_moe.switch_mlp.up_proj.weight"},
    {"blk.#.ffn_down_exps.weight", "model.layers.#.block_sparse_moe.switch_mlp.down_proj.weight"},
    // Experts one by one, as early converters left them.
    {"blk.#.ffn_gate.#.weight", "model.layers.#.block_sparse_moe.experts.#.w1.weight"},
    {"blk.#.ffn_down.#.weight", "model.layers.#.block_sparse_moe.experts.#.w2.weight"},
    {"blk.#.ffn_up.#.weight", "model.layers.#.block_sparse_moe.experts.#.w3.weight"},
    {"blk.#.ffn_gate.*", "model.layers.#.mlp.gate_proj.*"},
    {"blk.#.ffn_up.*", "model.layers.#.mlp.up_proj.*"},
    {"blk.#.ffn_down.*", "model.layers.#.mlp.down_proj.*"},
};

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

const GgufArch& gguf_llama() {
  static const GgufArch arch{"llama", "llama", "LlamaForCausalLM", gguf_decoder_keys(), kNames, complete};
  return arch;
}

}  // namespace mlxcel
