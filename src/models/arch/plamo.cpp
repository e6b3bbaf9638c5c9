// PLaMo 13B: one norm feeds attention and MLP side by side; query head i reads kv head i modulo their number
// (GGUF files hold the heads of one kv head side by side, and say so).
// Reference: mlx-lm plamo.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  auto d = Dims::from(c);
  const int shared = c.integer("n_shared_head", 1, kMaxHeads, 8);
  if (d.heads % shared != 0)
    fail(ErrorKind::unsupported, "{}: num_attention_heads {}: expected a multiple of n_shared_head {}",
         c.where(), d.heads, shared);
  d.kv_heads = d.heads / shared;
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  const auto rope = Rope::from(c, d);
  const bool in_turn = c.get("shared_heads_in_turn", true);
  return standard_decoder(w, d, norm, {}, [&](int, const Weights& layer) {
    return Parallel{
        .norm = norm(layer, "norm"),
        .mixer = Attention(layer / "self_attn", d,
                           {.rope = rope, .tiled = in_turn, .qkv_bias = Bias::none, .out_bias = Bias::none}),
        .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none)};
  });
}

}  // namespace

Arch arch_plamo() {
  return {.model_types = {"plamo"},
          .gguf = {"plamo"},
          .reference = "mlx-lm plamo",
          .build = build,
          .weights = {rename("model.layers.layers.*", "model.layers.*")},
          .tiny = R"({"model_type": "plamo", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "n_shared_head": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0})"};
}

}  // namespace mlxcel
