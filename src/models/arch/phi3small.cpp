// Phi-3-small: layers whose heads see some blocks of keys, clipped gates, muP's multipliers. Reference:
// mlx-lm phi3small.
#include <cmath>
#include <limits>
#include <memory>

#include "models/kit.h"
#include "nn/placed_attention.h"
#include "state/pattern.h"

namespace mlxcel {

namespace {

/// Tokens that the vocabulary holds and nobody says: their logits are minus infinity.
array silenced(int vocab) {
  std::vector<float> bias(static_cast<size_t>(vocab), 0.0f);
  for (int id = 100256; id < std::min(vocab, 100352); ++id)
    if (id != 100257 && id != 100261 && id != 100262 && id != 100263 && id != 100266)
      bias[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
  return array(bias.data(), {vocab}, mx::float32);
}

BlockPattern pattern_of(const Config& c, const Dims& d) {
  const BlockPattern pattern{.heads = d.heads,
                             .block = c.integer("blocksparse_block_size", 32, 64, 64),
                             .local = c.integer("blocksparse_num_local_blocks", 1, kMaxPositions, 16),
                             .stride = c.integer("blocksparse_vert_stride", 1, kMaxPositions, 8)};
  if (pattern.block % 32 != 0)
    fail(ErrorKind::unsupported, "{}: blocksparse_block_size is {}: 32 or 64 are supported", c.where(),
         pattern.block);
  return pattern;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto norm = layer_norms(d.hidden, epsilon(c, "layer_norm_epsilon", 1e-5f));
  const auto rope = Rope::proportional(d.head_dim, factor(c, "rope_embedding_base", 1e6f), 1.0f,
                                       1.0f / factor(c, "rope_position_scale"));
  const float width = static_cast<float>(d.head_dim);
  const float scale =
      c.get("mup_use_scaling", true) ? factor(c, "mup_attn_multiplier") / width : 1.0f / std::sqrt(width);
  const int every = c.integer("dense_attention_every_n_layers", 1, kMaxLayers, 2);
  const ClampedGlu clamp{.limit = factor(c, "gegelu_limit", 20.0f), .alpha = 1.702f, .offset = 1.0f};
  const int inner = c.integer("ff_intermediate_size", 1, kMaxWidth);
  const auto multiplier = [&](const char* key, float fallback) {
    return c.is_null(key) ? 1.0f : factor(c, key, fallback);
  };
  const auto choice = std::make_shared<PlaceChoice>(PlaceChoice{
      .choose = [pattern = pattern_of(c, d)](const Step& step) { return choose_pattern(step, pattern); }});

  Decoder model(
      d, w.embedding("model.embed_tokens", d.vocab, d.hidden, multiplier("mup_embedding_multiplier", 10.0f)));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers)) {
    model.add(PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                      .mixer = PlacedAttention(layer / "self_attn", d,
                                               {.rope = rope,
                                                .scale = scale,
                                                .choice = i % every == 0 ? choice : nullptr,
                                                .chooses = i == 0,
                                                .out = "dense"}),
                      .ffn_norm = norm(layer, "post_attention_layernorm"),
                      .ffn = GatedMlp(layer / "mlp", d.hidden, inner, Activation::silu, Bias::as_stored,
                                      {.gate = "gate", .up = "up", .down = "down_proj"}, clamp)});
  }
  Linear head = w.head_of(model.embedding(), "lm_head", "model.embed_tokens");
  head.bias = silenced(d.vocab);
  model.finish(norm(w, "model.final_layernorm"), head);
  model.logit_scale(1.0f / multiplier("mup_width_multiplier", 8.0f));
  return model;
}

std::vector<Rule> rules(const Config& c, const Source&) {
  const auto d = Dims::from(c);
  const int kv = d.kv_heads * d.head_dim;
  return {drop("*.rotary_emb.inv_freq"), drop("lm_head.weight"),
          split("*.query_key_value.*", {"*.q_proj.*", "*.k_proj.*", "*.v_proj.*"},
                {d.heads * d.head_dim, kv, kv}, d.kv_heads),
          deal(0, "*.mlp.up_proj.*", {"*.mlp.gate.*", "*.mlp.up.*"})};
}

}  // namespace

Arch arch_phi3small() {
  return {
      .model_types = {"phi3small"},
      .gguf = {},
      .reference = "mlx-lm phi3small",
      .build = build,
      .weights = rules,
      .tiny = R"({"model_type": "phi3small", "vocab_size": 256, "hidden_size": 192, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "ff_intermediate_size": 128, "gegelu_limit": 0.6,
              "dense_attention_every_n_layers": 2, "layer_norm_epsilon": 1e-5, "rope_embedding_base": 10000.0,
              "rope_position_scale": 0.5, "mup_attn_multiplier": 2.0, "mup_embedding_multiplier": 3.0,
              "mup_width_multiplier": 2.0, "blocksparse_block_size": 32, "blocksparse_num_local_blocks": 1,
              "blocksparse_vert_stride": 2, "max_position_embeddings": 512})"};
}

}  // namespace mlxcel
