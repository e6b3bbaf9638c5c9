// Phixtral: Phi-2's block, whose one LayerNorm feeds attention and ungated experts side by side. Reference:
// mlx-lm phixtral (the publisher's modeling_phi).
#include "models/kit.h"

namespace mlxcel {

namespace {

/// A size under its published name, or the name that converted files have.
int size(const Config& c, const char* key, const char* other, int most) {
  return c.integer(c.has(key) ? key : other, 1, most);
}

Dims dims(const Config& c) {
  Dims d;
  d.vocab = size(c, "vocab_size", "num_vocab", kMaxVocab);
  d.hidden = size(c, "n_embd", "model_dim", kMaxWidth);
  d.layers = size(c, "n_layer", "num_layers", kMaxLayers);
  d.heads = size(c, "n_head", "num_heads", kMaxHeads);
  d.kv_heads = d.heads;
  d.max_positions = c.integer("n_positions", 1, kMaxPositions, 2048);
  if (d.hidden % d.heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: width {} in {} heads: expected a whole multiple", c.where(),
         d.hidden, d.heads);
  if (c.has("n_head_kv") && c.integer("n_head_kv", 1, kMaxHeads) != d.heads)
    fail(ErrorKind::unsupported, "{}: n_head_kv {}: expected {}, the number of heads", c.where(),
         c.integer("n_head_kv", 1, kMaxHeads), d.heads);
  d.head_dim = d.hidden / d.heads;
  return d;
}

MoeOptions experts(const Config& c, int hidden) {
  if (!c.has("num_local_experts"))
    fail(
        ErrorKind::unsupported,
        "{}: model_type {} without num_local_experts: a plain Phi under its older names; files of model_type "
        "phi are supported",
        c.where(), c.get<std::string>("model_type"));
  MoeOptions moe;
  moe.experts = c.integer("num_local_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 2);
  moe.width = c.integer("n_inner", 1, kMaxWidth, 4 * hidden);
  moe.activation = activation_from(c, "activation_function", "gelu_new");
  moe.bank = "switch_mlp";
  moe.scoring = Scoring::chosen_softmax;
  moe.gated = false;
  moe.expert_bias = Bias::required;
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const auto norm = layer_norms(d.hidden, epsilon(c, "layer_norm_epsilon", 1e-5f));
  const auto moe = experts(c, d.hidden);
  const int rotated = c.integer("rotary_dim", 2, d.head_dim, 32);
  if (rotated % 2 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: rotary_dim {}: expected an even number", c.where(), rotated);
  const auto rope = Rope::plain(rotated, 10000.0f);
  Decoder model(d, w.embedding("transformer.embd.wte", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("transformer.h", d.layers))
    model.add(Parallel{.norm = norm(layer, "ln"),
                       .mixer = Attention(layer / "mixer", d,
                                          {.rope = rope,
                                           .qkv_bias = Bias::required,
                                           .out_bias = Bias::required,
                                           .fused = "Wqkv",
                                           .out = "out_proj"}),
                       .ffn = SparseMoe(layer / "moe", d.hidden, moe)});
  model.finish(norm(w, "lm_head.ln"), w.linear("lm_head.linear", d.vocab, d.hidden, Bias::required));
  return model;
}

}  // namespace

Arch arch_phixtral() {
  return {.model_types = {"phi-msft", "phixtral"},
          .reference = "mlx-lm phixtral",
          .build = build,
          .weights = {drop("*.rotary_emb.*"), stack("*.moe.mlp.#.fc1.*", "*.moe.switch_mlp.up_proj.*"),
                      stack("*.moe.mlp.#.fc2.*", "*.moe.switch_mlp.down_proj.*"),
                      rename("*.switch_mlp.fc1.*", "*.switch_mlp.up_proj.*"),
                      rename("*.switch_mlp.fc2.*", "*.switch_mlp.down_proj.*")},
          .tiny = R"({"model_type": "phi-msft", "vocab_size": 256, "n_embd": 192, "n_layer": 3, "n_head": 6,
              "n_positions": 512, "n_inner": 64, "rotary_dim": 16, "activation_function": "gelu_new",
              "layer_norm_epsilon": 1e-5, "num_local_experts": 6, "num_experts_per_tok": 3})"};
}

}  // namespace mlxcel
