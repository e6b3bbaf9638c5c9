// gemma3 (text), gemma-embedding. Every norm weight holds the +1 that the model adds, so it is taken off
// again.

#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

constexpr GgufName kNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight", GgufChange::minus_one},
    {"output.weight", "lm_head.weight"},
    {"blk.#.attn_norm.weight", "model.layers.#.input_layernorm.weight", GgufChange::minus_one},
    {"blk.#.attn_q_norm.weight", "model.layers.#.self_attn.q_norm.weight", GgufChange::minus_one},
    {"blk.#.attn_k_norm.weight", "model.layers.#.self_attn.k_norm.weight", GgufChange::minus_one},
    {"blk.#.attn_q.weight", "model.layers.#.self_attn.q_proj.weight"},
    {"blk.#.attn_k.weight", "model.layers.#.self_attn.k_proj.weight"},
    {"blk.#.attn_v.weight", "model.layers.#.self_attn.v_proj.weight"},
    {"blk.#.attn_output.weight", "model.layers.#.self_attn.o_proj.weight"},
    {"blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight",
     GgufChange::minus_one},
    {"blk.#.ffn_norm.weight", "model.layers.#.pre_feedforward_layernorm.weight", GgufChange::minus_one},
    {"blk.#.post_ffw_norm.weight", "model.layers.#.post_feedforward_layernorm.weight", GgufChange::minus_one},
    {"blk.#.ffn_gate.weight", "model.layers.#.mlp.gate_proj.weight"},
    {"blk.#.ffn_up.weight", "model.layers.#.mlp.up_proj.weight"},
    {"blk.#.ffn_down.weight", "model.layers.#.mlp.down_proj.weight"},
};

void complete(const GgufFacts& facts, ConfigDraft& config) {
  if (!config.contains("rope_theta")) config.set("rope_theta", 1e6);
  complete_gguf_rope(facts, config);
  const auto layers = config.integer("num_hidden_layers");
  const auto hidden = config.integer("hidden_size"), heads = config.integer("num_attention_heads");
  config.set("hidden_activation", "gelu_pytorch_tanh");
  // The format leaves these three to the reader; llama.cpp's graph has them as the published models do.
  config.set("sliding_window_pattern",
             facts.integer("attention.sliding_window_pattern", 1, 1 << 16).value_or(6));
  config.set("rope_local_base_freq", facts.number("rope.freq_base_swa").value_or(10000.0));
  const bool largest = layers == 62;  // 27B scales queries by width / heads, the others by the head
  config.set("query_pre_attn_scalar", largest ? hidden / heads : config.integer("head_dim"));
  if (const auto window = facts.integer("attention.sliding_window", 1, int64_t{1} << 30))
    config.set("sliding_window", *window);
  if (const auto cap = facts.number("final_logit_softcapping"); cap && *cap > 0)
    config.set("final_logit_softcapping", *cap);
}

/// EmbeddingGemma: the same graph, its tokens seen both ways.
void complete_embedding(const GgufFacts& facts, ConfigDraft& config) {
  complete(facts, config);
  config.set("use_bidirectional_attention", true);
}

}  // namespace

std::span<const GgufArch> gguf_gemma3s() {
  static const GgufArch archs[] = {
      {"gemma3", "gemma3_text", "Gemma3ForCausalLM", gguf_decoder_keys(), kNames, complete},
      {"gemma-embedding", "gemma3_text", "Gemma3TextModel", gguf_decoder_keys(), kNames, complete_embedding}};
  return archs;
}

}  // namespace mlxcel
