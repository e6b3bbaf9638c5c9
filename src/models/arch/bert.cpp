// BERT encoders: MiniLM, e5, bge; and XLM-RoBERTa (bge-m3), whose positions begin behind the padding id.
// Learned absolute positions, token type 0, a norm after every sublayer. Reference: transformers BertModel,
// XLMRobertaModel.
#include "models/kit.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

Encoder build(const Config& c, const Weights& w) {
  auto d = Dims::from(c);
  const int rows = c.integer("max_position_embeddings", 1, kMaxPositions);
  const bool roberta = c.get<std::string>("model_type") != "bert";
  const int first = roberta ? c.integer("pad_token_id", 0, kMaxVocab, 1) + 1 : 0;
  if (first >= rows)
    fail(ErrorKind::bad_checkpoint,
         "{}: max_position_embeddings {}: expected more than pad_token_id + 1 = {}", c.where(), rows, first);
  d.max_positions = rows - first;
  const auto position_kind = c.get<std::string>("position_embedding_type", "absolute");
  if (position_kind != "absolute")
    fail(ErrorKind::unsupported, "{}: position_embedding_type \"{}\" is not supported: expected absolute",
         c.where(), position_kind);
  if (c.get("is_decoder", false))
    fail(ErrorKind::unsupported, "{}: a BERT decoder (is_decoder) is not supported", c.where());
  const float eps = epsilon(c, "layer_norm_eps", 1e-12f);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c, "hidden_act", "gelu");

  const auto words = w.embedding("embeddings.word_embeddings", d.vocab, d.hidden);
  const auto positions = w.embedding("embeddings.position_embeddings", rows, d.hidden);
  const auto types = w.embedding("embeddings.token_type_embeddings",
                                 c.integer("type_vocab_size", 1, 1024, roberta ? 1 : 2), d.hidden);
  const auto norm = w.layer_norm("embeddings.LayerNorm", d.hidden, eps);
  Encoder model(
      {.vocab = d.vocab, .hidden = d.hidden, .max_positions = d.max_positions}, [=](const Step& step) {
        const array own = mx::add(words(step), types.row(0));
        if (first == 0) return norm(mx::add(own, positions.at_positions(step)));
        for (const StepRow& row : step.rows())
          if (row.position + row.count > d.max_positions)
            fail(ErrorKind::invalid_request, "{} tokens: this model has {} positions",
                 row.position + row.count, d.max_positions);
        const array at = mx::add(step.positions(), array(fault("learned positions shifted") ? 0 : first));
        return norm(mx::add(own, kernels::take_rows(positions.table, at)));
      });
  for (const auto& [i, layer] : w.layers("encoder.layer", d.layers))
    model.add(PostNorm{
        .mixer = EncoderAttention(layer / "attention", d),
        .after_mixer = layer.layer_norm("attention.output.LayerNorm", d.hidden, eps),
        .ffn = Mlp(layer, "intermediate.dense", "output.dense", d.hidden, width, activation, Bias::required),
        .after_ffn = layer.layer_norm("output.LayerNorm", d.hidden, eps)});
  return model;
}

}  // namespace

Arch arch_bert() {
  return {.model_types = {"bert", "xlm-roberta"},
          .gguf = {"bert"},
          .kind = "encoder",
          .reference = "transformers BertModel",
          .build = build,
          .weights = {rename("bert.*", "*"), rename("roberta.*", "*"), rename("*.gamma", "*.weight"),
                      rename("*.beta", "*.bias"), drop("pooler.*"), drop("cls.*"), drop("lm_head.*"),
                      drop("embeddings.position_ids")},
          .tiny = R"({"model_type": "bert", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_act": "gelu",
              "max_position_embeddings": 128, "type_vocab_size": 2, "layer_norm_eps": 1e-12})"};
}

}  // namespace mlxcel
