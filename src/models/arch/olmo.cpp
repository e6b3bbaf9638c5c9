// OLMo 1: LayerNorm without parameters, clipped q, k and v. The first checkpoints have config keys and tensor
// names of their own. Reference: transformers OlmoForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// Whether the config is spelled as the first checkpoints are.
bool is_original(const Config& c) { return c.has("d_model"); }

Dims dims(const Config& c) {
  if (!is_original(c)) return Dims::from(c);
  Dims d;
  const int vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.vocab = c.integer("embedding_size", 0, kMaxVocab, 0);
  if (d.vocab == 0) d.vocab = vocab;
  d.hidden = c.integer("d_model", 1, kMaxWidth);
  d.layers = c.integer("n_layers", 1, kMaxLayers);
  d.heads = c.integer("n_heads", 1, kMaxHeads);
  d.kv_heads = c.integer("n_kv_heads", 1, kMaxHeads, d.heads);
  d.max_positions = c.integer("max_sequence_length", 1, kMaxPositions);
  if (d.hidden % d.heads != 0 || d.heads % d.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: d_model {}, n_heads {}, n_kv_heads {}: expected whole multiples",
         c.where(), d.hidden, d.heads, d.kv_heads);
  d.head_dim = d.hidden / d.heads;
  return d;
}

/// Settings of the training code that no published checkpoint has otherwise.
void refuse_others(const Config& c) {
  const auto word = [&](const char* key, const char* only) {
    if (const auto found = c.get<std::string>(key, only); found != only)
      fail(ErrorKind::unsupported, "{}: {}: expected {}, found {}", c.where(), key, only, found);
  };
  const auto flag = [&](const char* key, bool only) {
    if (c.get(key, only) != only) fail(ErrorKind::unsupported, "{}: {}: expected {}", c.where(), key, only);
  };
  word("activation_type", "swiglu");
  word("layer_norm_type", "default");
  flag("layer_norm_with_affine", false);
  flag("attention_layer_norm", false);
  flag("alibi", false);
  flag("rope", true);
}

/// The first checkpoints give the width of gate and up together.
int width(const Config& c, int hidden) {
  if (!is_original(c)) return c.integer("intermediate_size", 1, kMaxWidth);
  return c.integer("mlp_hidden_size", 2, 2 * kMaxWidth, c.integer("mlp_ratio", 1, 64, 4) * hidden) / 2;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const bool original = is_original(c);
  if (original) refuse_others(c);
  const NormMaker norm = [](const Weights&, std::string_view) {
    return Norm(LayerNorm{.weight = {}, .bias = {}, .eps = 1e-5f});
  };
  const Bias bias = bias_if(c.get(original ? "include_bias" : "attention_bias", false));
  const auto activation = original ? Activation::silu : activation_from(c, "hidden_act", "silu");
  const float clip = c.get("clip_qkv", 0.0f);
  if (!(clip >= 0.0f))
    fail(ErrorKind::bad_checkpoint, "{}: clip_qkv: expected a positive number, found {}", c.where(), clip);
  const auto rope = Rope::from(c, d);
  const StandardOptions options{.tie = original ? tie_if(c.get("weight_tying", true)) : tied(c, false)};
  return standard_decoder(w, d, norm, options, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, ""),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope, .clip = clip, .qkv_bias = bias, .out_bias = bias}),
                   .ffn_norm = norm(layer, ""),
                   .ffn = GatedMlp(layer / "mlp", d.hidden, width(c, d.hidden), activation, Bias::none)};
  });
}

std::vector<Rule> rules(const Config& c, const Source&) {
  if (!is_original(c)) return {};
  const auto d = dims(c);
  const int kv = d.kv_heads * d.head_dim;
  const std::string from = "model.transformer.blocks.#.", to = "model.layers.#.";
  return {split(from + "att_proj.*",
                {to + "self_attn.q_proj.*", to + "self_attn.k_proj.*", to + "self_attn.v_proj.*"},
                {d.hidden, kv, kv}),
          rename(from + "attn_out.*", to + "self_attn.o_proj.*"),
          split(from + "ff_proj.*", {to + "mlp.up_proj.*", to + "mlp.gate_proj.*"}),
          rename(from + "ff_out.*", to + "mlp.down_proj.*"),
          rename("model.transformer.wte.*", "model.embed_tokens.*"),
          rename("model.transformer.ff_out.*", "lm_head.*")};
}

}  // namespace

Arch arch_olmo() {
  return {.model_types = {"olmo"},
          .gguf = {"olmo"},
          .reference = "transformers OlmoForCausalLM",
          .build = build,
          .weights = rules,
          .tiny = R"({"model_type": "olmo", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_act": "silu",
              "max_position_embeddings": 512, "rope_theta": 10000.0, "clip_qkv": 0.8,
              "attention_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
