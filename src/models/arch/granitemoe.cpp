// IBM Granite with experts: Granite's four multipliers, the best logits chosen before the softmax. Reference:
// transformers GraniteMoeForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_local_experts", 1, 4096, 8);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 2);
  moe.width = c.integer("intermediate_size", 1, kMaxWidth);
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.router = "router.layer";
  moe.scoring = Scoring::chosen_softmax;
  moe.bank = "switch_mlp";
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  const auto moe = experts(c);
  const auto rope = Rope::from(c, d);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const float scores = factor(c, "attention_multiplier"), branches = factor(c, "residual_multiplier");
  const StandardOptions options{.tie = tied(c, false), .embedding_scale = factor(c, "embedding_multiplier")};
  auto model = standard_decoder(w, d, norm, options, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d,
                                      {.rope = rope, .scale = scores, .qkv_bias = bias, .out_bias = bias}),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = SparseMoe(layer / "block_sparse_moe", d.hidden, moe),
                   .scale = branches};
  });
  model.logit_scale(1.0f / factor(c, "logits_scaling"));
  return model;
}

}  // namespace

Arch arch_granitemoe() {
  return {
      .model_types = {"granitemoe"},
      .gguf = {"granitemoe"},
      .reference = "transformers GraniteMoeForCausalLM",
      .build = build,
      .weights = {split_axis(-2, "*.block_sparse_moe.input_linear.weight",
                             {"*.block_sparse_moe.switch_mlp.gate_proj.weight",
                              "*.block_sparse_moe.switch_mlp.up_proj.weight"}),
                  rename("*.block_sparse_moe.output_linear.weight",
                         "*.block_sparse_moe.switch_mlp.down_proj.weight")},
      .tiny = R"({"model_type": "granitemoe", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 64,
              "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": true,
              "num_local_experts": 6, "num_experts_per_tok": 3, "tie_word_embeddings": false,
              "embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.4,
              "logits_scaling": 2.5})"};
}

}  // namespace mlxcel
