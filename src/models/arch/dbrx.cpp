// DBRX: bias-free LayerNorms, q, k and v in one projection and kept within limits, experts whose chosen
// weights are divided by their sum. Experts are published one after another in three matrices, the last one
// turned. Reference: mlx-lm dbrx.
#include "models/kit.h"

namespace mlxcel {

namespace {

Dims dims(const Config& c) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("d_model", 1, kMaxWidth);
  d.layers = c.integer("n_layers", 1, kMaxLayers);
  d.heads = c.integer("n_heads", 1, 4096);
  d.kv_heads = c.child("attn_config").integer("kv_n_heads", 1, d.heads, 1);
  d.max_positions = c.integer("max_seq_len", 0, kMaxPositions, 0);
  if (d.hidden % d.heads != 0 || d.heads % d.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: {} heads over width {} with {} key heads: the numbers do not fit together", c.where(), d.heads,
         d.hidden, d.kv_heads);
  d.head_dim = d.hidden / d.heads;
  return d;
}

MoeOptions experts(const Config& c) {
  const Config f = c.child("ffn_config");
  MoeOptions moe;
  moe.experts = f.integer("moe_num_experts", 1, 4096, 4);
  moe.per_token = f.integer("moe_top_k", 1, moe.experts, 1);
  moe.width = f.integer("ffn_hidden_size", 1, 1 << 16, 3584);
  moe.activation = activation_from(f.child("ffn_act_fn"), "name", "silu");
  moe.router = "router.layer";
  moe.bank = "switch_mlp";
  if (f.get("moe_normalize_expert_weights", 1.0f) != 1.0f)
    fail(ErrorKind::unsupported, "{}: moe_normalize_expert_weights: expected 1", f.where());
  moe.renormalize = true;
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  const Config a = c.child("attn_config");
  const auto norm = layer_norms(d.hidden, 1e-5f, Bias::none);
  const auto moe = experts(c);
  const auto rope = Rope::plain(d.head_dim, a.get("rope_theta", 10000.0f));
  const float clip = a.has("clip_qkv") ? factor(a, "clip_qkv", 8.0f) : 0.0f;
  return standard_decoder(w, d, norm, {}, [&](int, const Weights& layer) {
    const Weights both = layer / "norm_attn_norm";
    return PreNorm{.mixer_norm = norm(both, "norm_1"),
                   .mixer = Attention(both / "attn", d,
                                      {.rope = rope,
                                       .clip = clip,
                                       .qkv_bias = Bias::none,
                                       .out_bias = Bias::none,
                                       .fused = "Wqkv",
                                       .out = "out_proj"}),
                   .ffn_norm = norm(both, "norm_2"),
                   .ffn = SparseMoe(layer / "ffn", d.hidden, moe)};
  });
}

std::vector<Rule> weights(const Config& c, const Source&) {
  const int count = experts(c).experts;
  std::vector<Rule> rules{rename("transformer.wte.*", "model.embed_tokens.*"),
                          rename("transformer.norm_f.*", "model.norm.*"),
                          rename("transformer.blocks.#.*", "model.layers.#.*")};
  // One after another as published, or numbered as MLX's older conversions have them.
  for (const auto& [from, to] :
       {std::pair("w1", "gate_proj"), std::pair("v1", "up_proj"), std::pair("w2", "down_proj")}) {
    const auto name = fmt::format("*.ffn.experts.mlp.{}", from);
    rules.push_back(unflatten(name, count));
    if (std::string_view(from) == "w2") rules.push_back(transpose(name));
    rules.push_back(rename(name, fmt::format("*.ffn.switch_mlp.{}.weight", to)));
    rules.push_back(
        stack(fmt::format("*.ffn.experts.#.{}.*", from), fmt::format("*.ffn.switch_mlp.{}.*", to)));
  }
  return rules;
}

}  // namespace

Arch arch_dbrx() {
  return {.model_types = {"dbrx"},
          .gguf = {"dbrx"},
          .reference = "mlx-lm dbrx",
          .build = build,
          .weights = weights,
          .tiny = R"({"model_type": "dbrx", "vocab_size": 256, "d_model": 192, "n_layers": 3, "n_heads": 6,
              "max_seq_len": 512, "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.8, "rope_theta": 10000.0},
              "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 6, "moe_top_k": 3,
                             "ffn_act_fn": {"name": "silu"}, "moe_normalize_expert_weights": 1.0}})"};
}

}  // namespace mlxcel
