// MiniMax-M2: part of each head rotated, norms over the whole width of q and of k; sigmoid experts chosen
// with a correction bias. Reference: transformers MiniMaxM2ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_local_experts", 1, 4096, 256);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 8);
  moe.width = c.integer("intermediate_size", 1, kMaxWidth);
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.scoring = Scoring::sigmoid;
  moe.correction = "e_score_correction_bias";
  moe.renormalize = true;
  moe.bank = "switch_mlp";
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8, .head_dim = 128});
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto norm = rms_norms(d.hidden, eps);
  const auto moe = experts(c);
  float part = 1.0f;
  if (c.has("rotary_dim"))
    part = static_cast<float>(c.integer("rotary_dim", 2, d.head_dim)) / static_cast<float>(d.head_dim);
  const auto rope = Rope::from(c, d, {.theta = 5000000.0f, .part = part});

  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "input_layernorm"),
        .mixer = Attention(layer / "self_attn", d,
                           {.rope = rope,
                            .qk_norm = HeadNormOptions{.eps = eps, .over = HeadNormOptions::Over::width},
                            .qkv_bias = Bias::none,
                            .out_bias = Bias::none}),
        .ffn_norm = norm(layer, "post_attention_layernorm"),
        .ffn = SparseMoe(layer / "block_sparse_moe", d.hidden, moe)};
  });
}

}  // namespace

Arch arch_minimax() {
  return {
      .model_types = {"minimax_m2", "minimax"},
      .gguf = {"minimax-m2"},
      .reference = "transformers MiniMaxM2ForCausalLM",
      .build = build,
      .weights = {drop("model.mtp*"), stack("*.experts.#.w1.*", "*.switch_mlp.gate_proj.*"),
                  stack("*.experts.#.w2.*", "*.switch_mlp.down_proj.*"),
                  stack("*.experts.#.w3.*", "*.switch_mlp.up_proj.*")},
      .tiny = R"({"model_type": "minimax_m2", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64,
              "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "rotary_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 3, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
