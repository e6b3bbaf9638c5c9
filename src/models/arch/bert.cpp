// BERT encoders: MiniLM, e5, bge; and XLM-RoBERTa (bge-m3), whose positions begin behind the padding id.
// Learned absolute positions, token type 0, a norm after every sublayer. Reference: transformers BertModel,
// XLMRobertaModel.
#include "models/kit.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

/// Type 0 for a row's first text, type 1 for its second.
array types_of(const Embedding& types, const Step& step) {
  std::vector<int32_t> ids(static_cast<size_t>(step.count()), 0);
  bool pairs = false;
  for (const StepRow& row : step.rows()) {
    if (row.second <= 0 || types.rows < 2) continue;
    pairs = true;
    for (int i = row.second; i < row.count; ++i) ids[static_cast<size_t>(row.first + i)] = 1;
  }
  if (!pairs) return types.row(0);
  return kernels::take_rows(types.table, array(ids.data(), {step.count()}, mx::int32));
}

/// BERT: a dense layer over the first token, tanh, the labels. XLM-RoBERTa keeps both under `classifier`.
void add_classifier(Encoder& model, const Config& c, const Weights& w, int hidden, bool roberta) {
  const int labels = label_count(c);
  const Linear pooler =
      w.linear(roberta ? "classifier.dense" : "pooler.dense", hidden, hidden, Bias::required);
  const Linear out = w.linear(roberta ? "classifier.out_proj" : "classifier", labels, hidden, Bias::required);
  model.classify(labels, [=](const array& h, const Step& step) {
    return out(kernels::activate(pooler(first_of_rows(h, step)), Activation::tanh));
  });
}

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
        const array own = mx::add(words(step), types_of(types, step));
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
  if (is_classifier(c)) add_classifier(model, c, w, d.hidden, roberta);
  return model;
}

std::vector<Rule> weights(const Config& c, const Source&) {
  std::vector<Rule> rules{rename("bert.*", "*"),
                          rename("roberta.*", "*"),
                          rename("*.gamma", "*.weight"),
                          rename("*.beta", "*.bias"),
                          drop("cls.*"),
                          drop("lm_head.*"),
                          drop("embeddings.position_ids")};
  const bool pools = is_classifier(c) && c.get<std::string>("model_type") == "bert";
  if (!pools) rules.push_back(drop("pooler.*"));
  return rules;
}

}  // namespace

Arch arch_bert() {
  return {.model_types = {"bert", "xlm-roberta"},
          .gguf = {"bert"},
          .kind = "encoder",
          .reference = "transformers BertModel",
          .build = build,
          .weights = weights,
          .tiny = R"({"model_type": "bert", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_act": "gelu",
              "max_position_embeddings": 128, "type_vocab_size": 2, "layer_norm_eps": 1e-12})"};
}

}  // namespace mlxcel
