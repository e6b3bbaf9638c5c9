// GPT-2: learned positions, LayerNorm, one projection for q, k and v. Reference: transformers
// GPT2LMHeadModel.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

/// GPT-2 spells its sizes in its own way; later tools write the common names.
int size_of(const Config& c, const char* own, const char* common, int high) {
  return c.integer(c.has(own) ? own : common, 1, high);
}

Dims dims(const Config& c) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = size_of(c, "n_embd", "hidden_size", kMaxWidth);
  d.layers = size_of(c, "n_layer", "num_hidden_layers", kMaxLayers);
  d.heads = d.kv_heads = size_of(c, "n_head", "num_attention_heads", 4096);
  d.max_positions = size_of(c, "n_positions", "max_position_embeddings", kMaxPositions);
  if (d.hidden % d.heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: n_embd {}: expected a multiple of n_head {}", c.where(), d.hidden,
         d.heads);
  d.head_dim = d.hidden / d.heads;
  return d;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const float eps = epsilon(c, "layer_norm_epsilon", 1e-5f);
  const int width = c.integer("n_inner", 1, kMaxWidth, 4 * d.hidden);
  const auto activation = activation_from(c, "activation_function", "gelu_new");
  const bool scaled = c.get("scale_attn_weights", true),
             by_layer = c.get("scale_attn_by_inverse_layer_idx", false);
  const auto scale = [&](int i) {
    return (scaled ? 1.0f / std::sqrt(static_cast<float>(d.head_dim)) : 1.0f) /
           static_cast<float>(by_layer ? i + 1 : 1);
  };

  Decoder model(d, w.embedding("wte", d.vocab, d.hidden));
  model.learned_positions(w.embedding("wpe", d.max_positions, d.hidden));
  for (const auto& [i, layer] : w.layers("h", d.layers))
    model.add(
        PreNorm{.mixer_norm = layer.layer_norm("ln_1", d.hidden, eps),
                .mixer = Attention(layer / "attn", d,
                                   {.scale = scale(i),
                                    .qkv_bias = Bias::required,
                                    .out_bias = Bias::required,
                                    .fused = "c_attn",
                                    .out = "c_proj"}),
                .ffn_norm = layer.layer_norm("ln_2", d.hidden, eps),
                .ffn = Mlp(layer / "mlp", "c_fc", "c_proj", d.hidden, width, activation, Bias::required)});
  model.finish(w.layer_norm("ln_f", d.hidden, eps),
               make_head(w, "lm_head", "wte", model.embedding(), tie_if(c.get("tie_word_embeddings", true))));
  return model;
}

/// Published checkpoints keep Conv1D's [in, out]; converted ones are linear already. c_attn, never square,
/// tells which.
std::vector<Rule> rules(const Config& c, const Source& source) {
  std::vector<Rule> list = {drop("*.attn.bias"),          drop("*.attn.masked_bias"),
                            rename("transformer.*", "*"), rename("model.h.*", "h.*"),
                            rename("model.w*", "w*"),     rename("model.ln_f.*", "ln_f.*")};
  for (const char* prefix : {"transformer.", "model.", ""})
    if (const auto info = source.find(std::string(prefix) + "h.0.attn.c_attn.weight"))
      if (info->shape == Shape{dims(c).hidden, 3 * dims(c).hidden})
        for (const char* linear :
             {"*.attn.c_attn.weight", "*.attn.c_proj.weight", "*.mlp.c_fc.weight", "*.mlp.c_proj.weight"})
          list.push_back(transpose(linear));
  return list;
}

}  // namespace

Arch arch_gpt2() {
  return {.model_types = {"gpt2"},
          .gguf = {"gpt2"},
          .reference = "transformers GPT2LMHeadModel",
          .build = build,
          .weights = rules,
          .tiny = R"({"model_type": "gpt2", "vocab_size": 256, "n_embd": 64, "n_layer": 3, "n_head": 4,
              "n_positions": 128, "n_inner": null, "activation_function": "gelu_new",
              "layer_norm_epsilon": 1e-5,
              "scale_attn_weights": true})"};
}

}  // namespace mlxcel
