// bert, modern-bert: encoders for embeddings. Pooling stays in the metadata (bert.pooling_type).

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
    {"cls.weight", "pooler.dense.weight"},
    {"cls.bias", "pooler.dense.bias"},
    {"cls.output.*", "classifier.*"},
};

/// A classifier over whole rows (rerankers): as many labels as its matrix has rows.
bool set_classifier(const GgufFacts& facts, ConfigDraft& config, const char* hf_class) {
  const auto labels = facts.rows("cls.output.weight");
  if (!labels) return false;
  config.set("architectures", std::vector<std::string>{hf_class});
  config.set("num_labels", *labels);
  return true;
}

void complete(const GgufFacts& facts, ConfigDraft& config) {
  const auto types = facts.file.tensors.find("token_types.weight");
  config.set("type_vocab_size", types == facts.file.tensors.end() ? 0 : types->second.shape[0]);
  config.set("hidden_act", "gelu");
  config.set("position_embedding_type", "absolute");
  if (set_classifier(facts, config, "BertForSequenceClassification") && !facts.has_tensor("cls.weight"))
    fail(ErrorKind::unsupported,
         "{}: a BERT classifier without its pooling layer, which llama.cpp's converter leaves out; use a "
         "safetensors folder",
         facts.file.first.string());
  config.erase("tie_word_embeddings");
}

constexpr GgufKey kModernKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"context_length", "max_position_embeddings", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"feed_forward_length", "intermediate_size", Kind::integer, true},
    {"attention.head_count", "num_attention_heads", Kind::integer, true},
    {"attention.layer_norm_rms_epsilon", "norm_eps", Kind::number},
    {"attention.layer_norm_epsilon", "norm_eps", Kind::number},
    {"attention.sliding_window", "local_attention", Kind::integer, true},
    {"rope.freq_base", "global_rope_theta", Kind::number, true},
};

constexpr GgufName kModernNames[] = {
    {"token_embd.weight", "embeddings.tok_embeddings.weight"},
    {"token_embd_norm.*", "embeddings.norm.*"},
    {"output_norm.*", "final_norm.*"},
    {"blk.#.attn_norm.*", "layers.#.attn_norm.*"},
    {"blk.#.attn_qkv.*", "layers.#.attn.Wqkv.*"},
    {"blk.#.attn_output.*", "layers.#.attn.Wo.*"},
    {"blk.#.ffn_norm.*", "layers.#.mlp_norm.*"},
    {"blk.#.ffn_up.*", "layers.#.mlp.Wi.*"},
    {"blk.#.ffn_down.*", "layers.#.mlp.Wo.*"},
    {"cls.weight", "head.dense.weight"},
    {"cls.bias", "head.dense.bias"},
    {"cls.norm.*", "head.norm.*"},
    {"cls.output.*", "classifier.*"},
};

void complete_modern(const GgufFacts& facts, ConfigDraft& config) {
  if (set_classifier(facts, config, "ModernBertForSequenceClassification")) {
    const bool mean = facts.integer("classifier.pooling_type", 0, 255).value_or(2) == 1;
    config.set("classifier_pooling", mean ? "mean" : "cls");
    config.set("classifier_bias", facts.has_tensor("cls.bias"));
  }
  config.set("local_rope_theta", facts.number("rope.freq_base_swa").value_or(10000.0));
  config.set("global_attn_every_n_layers",
             facts.integer("attention.sliding_window_pattern", 1, 4096).value_or(3));
  config.set("hidden_activation",
             gguf_string(facts.file.metadata, facts.prefix + "hidden_activation").value_or("gelu").c_str());
  config.set("norm_bias", facts.has_tensor("output_norm.bias"));
  config.set("attention_bias", facts.has_tensor("blk.0.attn_qkv.bias"));
  config.set("mlp_bias", facts.has_tensor("blk.0.ffn_up.bias"));
  config.erase("tie_word_embeddings");
}

}  // namespace

std::span<const GgufArch> gguf_encoders() {
  static const GgufArch archs[] = {
      {"modern-bert", "modernbert", "ModernBertModel", kModernKeys, kModernNames, complete_modern}};
  return archs;
}

const GgufArch& gguf_bert() {
  static const GgufArch arch{"bert", "bert", "BertModel", kKeys, kNames, complete};
  return arch;
}

}  // namespace mlxcel
