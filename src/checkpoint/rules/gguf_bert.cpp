// bert: encoders for embeddings. Pooling stays in the metadata (bert.pooling_type).

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
    {"attention.layer_norm_epsilon", "layer_norm_eps", Kind::number, true},
};

constexpr GgufName kNames[] = {
    {"token_embd.weight", "embeddings.word_embeddings.weight"},
    {"position_embd.weight", "embeddings.position_embeddings.weight"},
    {"token_types.weight", "embeddings.token_type_embeddings.weight"},
    {"token_embd_norm.*", "embeddings.LayerNorm.*"},
    {"blk.#.attn_q.*", "encoder.layer.#.attention.self.query.*"},
    {"blk.#.attn_k.*", "encoder.layer.#.attention.self.key.*"},
    {"blk.#.attn_v.*", "encoder.layer.#.attention.self.value.*"},
    {"blk.#.attn_output.*", "encoder.layer.#.attention.output.dense.*"},
    {"blk.#.attn_output_norm.*", "encoder.layer.#.attention.output.LayerNorm.*"},
    {"blk.#.ffn_up.*", "encoder.layer.#.intermediate.dense.*"},
    {"blk.#.ffn_down.*", "encoder.layer.#.output.dense.*"},
    {"blk.#.layer_output_norm.*", "encoder.layer.#.output.LayerNorm.*"},
};

void complete(const GgufFacts& facts, ConfigDraft& config) {
  const auto types = facts.file.tensors.find("token_types.weight");
  config.set("type_vocab_size", types == facts.file.tensors.end() ? 0 : types->second.shape[0]);
  config.set("hidden_act", "gelu");
  config.set("position_embedding_type", "absolute");
  config.erase("tie_word_embeddings");
}

}  // namespace

const GgufArch& gguf_bert() {
  static const GgufArch arch{"bert", "bert", "BertModel", kKeys, kNames, complete};
  return arch;
}

}  // namespace mlxcel
