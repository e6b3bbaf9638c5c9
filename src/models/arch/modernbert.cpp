// ModernBERT: two of three layers see 64 tokens to each side and rotate by another base, the third sees all;
// q, k, v in one projection, gate and value in another; no norm before the first attention. Reference:
// transformers ModernBertModel, ModernBertForSequenceClassification.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// One base for each kind of layer, under the older keys or in rope_parameters.
Rope rotation(const Config& c, const Dims& d, const char* kind, const char* older, float theta) {
  if (!c.child("rope_parameters").empty()) return Rope::from(c, d, {.theta = theta, .layer_type = kind});
  return Rope::plain(d.head_dim, c.get(older, theta));
}

/// h += attention(norm(h)); h += ffn(norm(h)); the first layer's input is normed already.
struct Layer {
  std::optional<Norm> attention_norm;
  Attention attention;
  Norm ffn_norm;
  Linear in, out;
  Activation activation;

  array operator()(const array& h, Step& step) const {
    const array seen = attention(attention_norm ? (*attention_norm)(h) : h, step, h);
    const auto halves = mx::split(in(ffn_norm(seen)), 2, -1);
    return out(mx::multiply(kernels::activate(halves[0], activation), halves[1]), seen);
  }
};

/// head: dense, activation, norm; over the first token or the mean, as classifier_pooling says.
void add_classifier(Encoder& model, const Config& c, const Weights& w, int hidden, float eps) {
  const int labels = label_count(c);
  const auto pooling = c.get<std::string>("classifier_pooling", "cls");
  if (pooling != "cls" && pooling != "mean")
    fail(ErrorKind::unsupported, "{}: classifier_pooling \"{}\": expected cls or mean", c.where(), pooling);
  const Linear dense = w.linear("head.dense", hidden, hidden, bias_if(c.get("classifier_bias", false)));
  const auto activation = activation_from(c, "classifier_activation", "gelu");
  const auto norm = w.layer_norm("head.norm", hidden, eps, bias_if(c.get("norm_bias", false)));
  const Linear out = w.linear("classifier", labels, hidden, Bias::required);
  model.classify(labels, [=, mean = pooling == "mean"](const array& h, const Step& step) {
    const array pooled = mean ? mean_of_rows(h, step) : first_of_rows(h, step);
    return out(norm(kernels::activate(dense(pooled), activation)));
  });
}

Encoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  w.keep_nothing(/*two_way=*/true);
  const float eps = c.has("norm_eps") ? epsilon(c, "norm_eps", 1e-5f) : epsilon(c, "layer_norm_eps", 1e-5f);
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 1152);
  const auto activation = activation_from(c, "hidden_activation", "gelu");
  const Bias attention_bias = bias_if(c.get("attention_bias", false)),
             mlp_bias = bias_if(c.get("mlp_bias", false)), norm_bias = bias_if(c.get("norm_bias", false));
  const int every = c.integer("global_attn_every_n_layers", 1, kMaxLayers, 3);
  const auto plan = LayerPlan::from(c, d.layers, c.integer("local_attention", 2, kMaxPositions, 128),
                                    [&](int i) { return i % every != 0; });
  const auto full = rotation(c, d, "full_attention", "global_rope_theta", 160000.0f);
  const auto local = rotation(c, d, "sliding_attention", "local_rope_theta", 10000.0f);
  const auto norm = [&](const Weights& scope, const char* name) {
    return scope.layer_norm(name, d.hidden, eps, norm_bias);
  };

  const auto words = w.embedding("embeddings.tok_embeddings", d.vocab, d.hidden);
  const auto first = norm(w, "embeddings.norm");
  Encoder model({.vocab = d.vocab, .hidden = d.hidden, .max_positions = d.max_positions},
                [=](const Step& step) { return first(words(step)); });
  for (const auto& [i, layer] : w.layers("layers", d.layers)) {
    const Weights mlp = layer / "mlp";
    model.add(Layer{.attention_norm = i == 0 ? std::nullopt : std::optional<Norm>(norm(layer, "attn_norm")),
                    .attention = Attention(layer / "attn", d,
                                           {.rope = plan.sliding(i) ? local : full,
                                            .window = plan.sliding(i) ? plan.window(i) / 2 + 1 : 0,
                                            .qkv_bias = attention_bias,
                                            .out_bias = attention_bias,
                                            .fused = "Wqkv",
                                            .out = "Wo"}),
                    .ffn_norm = norm(layer, "mlp_norm"),
                    .in = mlp.linear("Wi", 2 * width, d.hidden, mlp_bias),
                    .out = mlp.linear("Wo", d.hidden, width, mlp_bias),
                    .activation = activation});
  }
  model.finish(norm(w, "final_norm"));
  if (is_classifier(c)) add_classifier(model, c, w, d.hidden, eps);
  return model;
}

std::vector<Rule> weights(const Config& c, const Source&) {
  std::vector<Rule> rules{rename("model.*", "*"), drop("decoder.*")};
  if (!is_classifier(c)) rules.push_back(drop("head.*"));
  return rules;
}

}  // namespace

Arch arch_modernbert() {
  return {
      .model_types = {"modernbert"},
      .gguf = {"modern-bert"},
      .kind = "encoder",
      .reference = "transformers ModernBertModel",
      .build = build,
      .weights = weights,
      .tiny = R"({"model_type": "modernbert", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 4, "hidden_activation": "gelu",
              "max_position_embeddings": 512, "norm_eps": 1e-5, "norm_bias": true, "attention_bias": true,
              "mlp_bias": true, "global_attn_every_n_layers": 2, "local_attention": 12,
              "global_rope_theta": 160000.0, "local_rope_theta": 10000.0})"};
}

}  // namespace mlxcel
