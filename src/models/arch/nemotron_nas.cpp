// Llama-Nemotron Super and Ultra: Llama with layers pruned one by one: a sublayer may be missing, or be one
// matrix; kv heads and feed-forward width are every layer's own. Reference: mlx-lm nemotron-nas.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// A sublayer that is one matrix.
struct OneLinear {
  Linear linear;
  array operator()(const array& x, Step&, const Residual& residual) const { return linear(x, residual); }
};

/// h += sublayer(norm(h)) for each sublayer that is there.
struct PrunedLayer {
  struct Sublayer {
    Norm norm;
    Mixer part;
  };
  std::vector<Sublayer> sublayers;
  array operator()(array h, Step& step) const {
    for (const auto& [norm, part] : sublayers) h = part(norm(h), step, h);
    return h;
  }
};

/// A feed-forward where a mixer is expected.
struct AsMixer {
  Ffn ffn;
  array operator()(const array& x, Step&, const Residual& residual) const { return ffn(x, residual); }
};

int width_of(const Config& ffn, int hidden) {
  const float multiplier = ffn.get<float>("ffn_mult");
  const double wanted = 2.0 * multiplier * hidden / 3.0;
  if (!(wanted >= 1.0 && wanted < kMaxWidth))
    fail(ErrorKind::bad_checkpoint, "{}: ffn_mult {} is out of bounds", ffn.where(), multiplier);
  return (static_cast<int>(wanted) + 255) / 256 * 256;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-5f));
  const auto activation = activation_from(c, "hidden_act", "silu");
  const Bias attention_bias = bias_if(c.get("attention_bias", false)),
             mlp_bias = bias_if(c.get("mlp_bias", false));
  const auto rope = Rope::from(c, d, {.theta = 500000.0f});
  const auto blocks = c.children("block_configs");
  if (static_cast<int>(blocks.size()) != d.layers)
    fail(ErrorKind::bad_checkpoint, "{}: block_configs: expected {} (num_hidden_layers), found {}", c.where(),
         d.layers, blocks.size());

  const auto attention = [&](const Config& own, const Weights& scope) -> Mixer {
    if (own.get("replace_with_linear", false))
      return OneLinear{scope.linear("linear", d.hidden, d.hidden, attention_bias)};
    const int group = own.integer("n_heads_in_group", 1, d.heads);
    if (d.heads % group != 0)
      fail(ErrorKind::bad_checkpoint, "{}: n_heads_in_group {}: expected a divisor of {} heads", own.where(),
           group, d.heads);
    Dims dims = d;
    dims.kv_heads = d.heads / group;
    return Attention(scope, dims, {.rope = rope, .qkv_bias = attention_bias, .out_bias = attention_bias});
  };
  const auto feed_forward = [&](const Config& own, const Weights& scope) -> Mixer {
    if (own.get("replace_with_linear", false))
      return OneLinear{scope.linear("linear", d.hidden, d.hidden, mlp_bias)};
    return AsMixer{GatedMlp(scope, d.hidden, width_of(own, d.hidden), activation, mlp_bias)};
  };
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int i, const Weights& layer) {
    const Config block = blocks[static_cast<size_t>(i)];
    const Config mixer = block.child("attention"), ffn = block.child("ffn");
    PrunedLayer pruned;
    if (!mixer.get("no_op", false))
      pruned.sublayers.push_back({norm(layer, "input_layernorm"), attention(mixer, layer / "self_attn")});
    if (!ffn.get("no_op", false))
      pruned.sublayers.push_back({norm(layer, "post_attention_layernorm"), feed_forward(ffn, layer / "mlp")});
    return pruned;
  });
}

}  // namespace

Arch arch_nemotron_nas() {
  return {
      .model_types = {"nemotron-nas"},
      .gguf = {"deci"},
      .reference = "mlx-lm nemotron-nas",
      .build = build,
      .tiny = R"({"model_type": "nemotron-nas", "vocab_size": 256, "hidden_size": 192, "num_hidden_layers": 4,
              "num_attention_heads": 6, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": true, "mlp_bias": true,
              "tie_word_embeddings": false,
              "block_configs": [
                {"attention": {"n_heads_in_group": 3}, "ffn": {"ffn_mult": 1.0}},
                {"attention": {"no_op": true}, "ffn": {"ffn_mult": 2.5}},
                {"attention": {"replace_with_linear": true}, "ffn": {"no_op": true}},
                {"attention": {"n_heads_in_group": 2}, "ffn": {"replace_with_linear": true}}]})"};
}

}  // namespace mlxcel
