// Mixtral: llama's attention, experts in place of the MLP. Reference: transformers MixtralForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_local_experts", 1, 4096, 8);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 2);
  moe.width = c.integer("intermediate_size", 1, kMaxWidth);
  moe.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  moe.scoring = Scoring::chosen_softmax;
  moe.bank = "switch_mlp";
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8});
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto moe = experts(c);
  const auto rope = Rope::from(c, d, {.theta = 1000000.0f});
  const int window = c.integer("sliding_window", 0, kMaxPositions, 0);

  return pre_norm_decoder(
      c, w, d, eps,
      {.mixer =
           [&](int, const Weights& layer) {
             return Attention(layer / "self_attn", d, {.rope = rope, .window = window});
           },
       .ffn = [&](int,
                  const Weights& layer) { return SparseMoe(layer / "block_sparse_moe", d.hidden, moe); }});
}

}  // namespace

Arch arch_mixtral() {
  return {.model_types = {"mixtral"},
          .gguf = {"llama"},
          .reference = "transformers MixtralForCausalLM",
          .build = build,
          .weights = {stack("*.experts.#.w1.*", "*.switch_mlp.gate_proj.*"),
                      stack("*.experts.#.w2.*", "*.switch_mlp.down_proj.*"),
                      stack("*.experts.#.w3.*", "*.switch_mlp.up_proj.*")},
          .tiny = R"({"model_type": "mixtral", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "sliding_window": 8, "num_local_experts": 5, "num_experts_per_tok": 2,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
