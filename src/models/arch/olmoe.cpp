// OLMoE: norms over the whole width of q and of k, which may be clipped; softmax experts. Reference:
// transformers OlmoeForCausalLM.
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 8);
  moe.width = c.integer("intermediate_size", 1, kMaxWidth);
  moe.renormalize = c.get("norm_topk_prob", false);
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.bank = "switch_mlp";
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  if (c.has("clip_qkv"))
    fail(ErrorKind::unsupported, "{}: clip_qkv behind the norms of q and k is not supported", c.where());
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto moe = experts(c);
  const auto rope = Rope::from(c, d);
  const Bias bias = bias_if(c.get("attention_bias", false));
  const HeadNormOptions qk_norm{.eps = eps, .over = HeadNormOptions::Over::width};

  return sparse_decoder(c, w, d, eps,
                        {[&](int) {
                           return AttentionOptions{
                               .rope = rope, .qk_norm = qk_norm, .qkv_bias = bias, .out_bias = bias};
                         },
                         moe});
}

}  // namespace

Arch arch_olmoe() {
  return {.model_types = {"olmoe"},
          .gguf = {"olmoe"},
          .reference = "transformers OlmoeForCausalLM",
          .build = build,
          .weights = stack_experts(),
          .tiny = R"({"model_type": "olmoe", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 64,
              "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": true,
              "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": false, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
