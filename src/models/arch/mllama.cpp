// Llama 3.2 Vision: the text side. Images come in through layers of their own that look at nothing else;
// where there is none these layers are passed over, so they are left out. Reference: transformers
// MllamaForConditionalGeneration.
#include <set>

#include "models/kit.h"

namespace mlxcel {

namespace {

/// The layers that look at images.
std::set<int> crossing(const Config& c, int layers) {
  const auto list = c.get<std::vector<int>>("cross_attention_layers", {3, 8, 13, 18, 23, 28, 33, 38});
  const std::set<int> set(list.begin(), list.end());
  if (set.size() != list.size() || (!set.empty() && (*set.begin() < 0 || *set.rbegin() >= layers)) ||
      static_cast<int>(set.size()) >= layers)
    fail(ErrorKind::bad_checkpoint,
         "{}: cross_attention_layers: expected fewer than {} numbers from 0 to {}, each once", c.where(),
         layers, layers - 1);
  return set;
}

Decoder build(const Config& whole, const Weights& w) {
  const Config c = text_config(whole);
  const auto d = Dims::from(c, {.heads = 32, .kv_heads = 8});
  const auto cross = crossing(c, d.layers);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-5f));
  const auto rope = Rope::from(c, d, {.theta = 500000.0f});
  if (whole.has("vision_config"))
    w.warn("the text side alone is served: the vision tower is left out, images are refused");

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers)) {
    if (cross.contains(i)) continue;
    model.add(PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                      .mixer = Attention(layer / "self_attn", d,
                                         {.rope = rope, .qkv_bias = Bias::none, .out_bias = Bias::none}),
                      .ffn_norm = norm(layer, "post_attention_layernorm"),
                      .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none)});
  }
  model.finish(norm(w, "model.norm"),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(), Tie::no, Bias::none));
  return model;
}

/// Eight rows behind the vocabulary stand for images.
std::vector<Rule> weights(const Config& whole, const Source& source) {
  const Config c = text_config(whole);
  auto rules = text_side_rules();
  for (const int i : crossing(c, c.integer("num_hidden_layers", 1, kMaxLayers)))
    rules.push_back(drop(fmt::format("model.layers.{}.*", i)));
  const int vocab = c.integer("vocab_size", 1, kMaxVocab);
  for (const char* name : {"model.embed_tokens.weight", "model.language_model.embed_tokens.weight",
                           "language_model.model.embed_tokens.weight"})
    if (const auto found = source.find(name);
        found && !found->shape.empty() && found->shape[0] == vocab + 8) {
      rules.push_back(split("model.embed_tokens.weight",
                            {"model.embed_tokens.weight", "model.embed_images.weight"}, {vocab, 8}));
      rules.push_back(drop("model.embed_images.weight"));
    }
  return rules;
}

}  // namespace

Arch arch_mllama() {
  return {.model_types = {"mllama", "mllama_text_model"},
          .reference = "transformers MllamaForConditionalGeneration",
          .build = build,
          .weights = weights,
          .tiny = R"({"model_type": "mllama", "text_config": {
              "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128, "num_hidden_layers": 4,
              "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                               "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
              "cross_attention_layers": [1]}})"};
}

}  // namespace mlxcel
