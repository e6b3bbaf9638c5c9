// gemma, gemma2. Norm weights hold the +1 that the model adds, so it is taken off again; heads are tied.
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

constexpr GgufChange kMinusOne = GgufChange::minus_one;

std::span<const GgufName> gemma_names() {
  static const auto names = gguf_llama_names(
      {{"output_norm.weight", "model.norm.weight", kMinusOne},
       {"blk.#.attn_norm.weight", "model.layers.#.input_layernorm.weight", kMinusOne},
       {"blk.#.ffn_norm.weight", "model.layers.#.post_attention_layernorm.weight", kMinusOne}});
  return names;
}

std::span<const GgufName> gemma2_names() {
  static const auto names = gguf_llama_names(
      {{"output_norm.weight", "model.norm.weight", kMinusOne},
       {"blk.#.attn_norm.weight", "model.layers.#.input_layernorm.weight", kMinusOne},
       {"blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight", kMinusOne},
       {"blk.#.ffn_norm.weight", "model.layers.#.pre_feedforward_layernorm.weight", kMinusOne},
       {"blk.#.post_ffw_norm.weight", "model.layers.#.post_feedforward_layernorm.weight", kMinusOne}});
  return names;
}

void complete_gemma(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_act", "gelu_pytorch_tanh");
}

void complete_gemma2(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_activation", "gelu_pytorch_tanh");
  config.set("sliding_window", facts.integer("attention.sliding_window", 1, int64_t{1} << 30).value_or(4096));
  config.set("attn_logit_softcapping", facts.number("attn_logit_softcapping").value_or(50.0));
  config.set("final_logit_softcapping", facts.number("final_logit_softcapping").value_or(30.0));
  // 27B, of 46 layers, scales queries by width / heads, the others by the head.
  const bool largest = config.integer("num_hidden_layers") == 46;
  config.set("query_pre_attn_scalar",
             largest ? config.integer("hidden_size") / config.integer("num_attention_heads")
                     : config.integer("head_dim"));
}

}  // namespace

std::span<const GgufArch> gguf_gemmas() {
  static const GgufArch archs[] = {
      {"gemma", "gemma", "GemmaForCausalLM", gguf_decoder_keys(), gemma_names(), complete_gemma},
      {"gemma2", "gemma2", "Gemma2ForCausalLM", gguf_decoder_keys(), gemma2_names(), complete_gemma2}};
  return archs;
}

}  // namespace mlxcel
