// Phi-3.5-MoE: LayerNorms and biases around Llama's attention, two experts for each token, each weighed by a
// softmax over those that come near it. Reference: transformers PhimoeForCausalLM (sparsemixer).
#include <limits>

#include "models/kit.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

/// The best expert and its share among those within `nearness` of it; then the same without that one.
class NearChoice {
 public:
  NearChoice(const Weights& w, int hidden, int experts, float nearness)
      : gate_(w.linear("gate", experts, hidden, Bias::none)), nearness_(nearness) {}

  /// Experts [tokens, 2] int32, and their weights.
  std::pair<array, array> operator()(const array& x) const {
    const array scores = gate_(x);
    const auto [first, first_share] = best(scores, scores);
    const array rest = mx::put_along_axis(scores, first, array(-std::numeric_limits<float>::infinity()), 1);
    const auto [second, second_share] = best(rest, scores);
    const array shares = mx::concatenate({first_share, second_share}, 1);
    return {mx::concatenate({first, second}, 1),
            fault("expert weights dropped") ? mx::ones_like(shares) : shares};
  }

 private:
  std::pair<array, array> best(const array& open, const array& scores) const {
    const array at = mx::astype(mx::argmax(open, 1, /*keepdims=*/true), mx::int32);
    const array top = mx::take_along_axis(open, at, 1);
    const array scale = mx::maximum(mx::abs(scores), top);
    const array far = mx::greater(mx::divide(mx::subtract(top, scores), scale), array(2.0f * nearness_));
    const array near = mx::where(far, array(-std::numeric_limits<float>::infinity()), open);
    return {at, mx::take_along_axis(mx::softmax(near, std::vector<int>{-1}, /*precise=*/true), at, 1)};
  }

  Linear gate_;
  float nearness_;
};

struct Experts {
  NearChoice choice;
  SparseMoe bank;
  array operator()(const array& x, const Residual& residual) const {
    const auto [chosen, weights] = choice(x);
    return bank.with(x, chosen, weights, residual);
  }
};

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_local_experts", 2, 4096, 16);
  moe.per_token = 2;
  if (c.integer("num_experts_per_tok", 1, moe.experts, 2) != 2)
    fail(ErrorKind::unsupported, "{}: num_experts_per_tok {}: expected 2, the number its router picks",
         c.where(), c.integer("num_experts_per_tok", 1, moe.experts, 2));
  moe.width = c.integer("intermediate_size", 1, kMaxWidth, 6400);
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.router = "";
  moe.bank = "switch_mlp";
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8});
  const auto norm = layer_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-5f));
  const auto moe = experts(c);
  const float nearness = c.get("router_jitter_noise", 0.01f);
  const auto rope = Rope::from(c, d, {.theta = 1000000.0f});
  const Bias bias = bias_if(c.get("attention_bias", false));
  const int window = c.integer("sliding_window", 0, kMaxPositions, 0);
  return standard_decoder(
      w, d, norm, {.tie = tied(c, false), .head_bias = bias_if(c.get("lm_head_bias", false))},
      [&](int, const Weights& layer) {
        const Weights sparse = layer / "block_sparse_moe";
        return PreNorm{
            .mixer_norm = norm(layer, "input_layernorm"),
            .mixer = Attention(layer / "self_attn", d,
                               {.rope = rope, .window = window, .qkv_bias = bias, .out_bias = bias}),
            .ffn_norm = norm(layer, "post_attention_layernorm"),
            .ffn = Experts{.choice = NearChoice(sparse, d.hidden, moe.experts, nearness),
                           .bank = SparseMoe(sparse, d.hidden, moe)}};
      });
}

}  // namespace

Arch arch_phimoe() {
  return {.model_types = {"phimoe"},
          .gguf = {"phimoe"},
          .reference = "transformers PhimoeForCausalLM",
          .build = build,
          .weights = {stack("*.experts.#.w1.*", "*.switch_mlp.gate_proj.*"),
                      stack("*.experts.#.w2.*", "*.switch_mlp.down_proj.*"),
                      stack("*.experts.#.w3.*", "*.switch_mlp.up_proj.*")},
          .tiny = R"({"model_type": "phimoe", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 64,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": true,
              "lm_head_bias": true, "num_local_experts": 6, "num_experts_per_tok": 2, "router_jitter_noise": 0.3,
              "sliding_window": 8, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
