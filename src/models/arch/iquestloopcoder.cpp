// IQuest loop coder: the stack runs twice. In the second pass each head mixes what it sees of the first
// pass's keys with what it sees of its own last ones. Reference: mlx-lm iquestloopcoder.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "models/kit.h"
#include "nn/fault.h"
#include "nn/heads.h"
#include "state/attend.h"

namespace mlxcel {

namespace {

/// One layer's projections, used by both passes. Owner: the two passes' parts, together.
struct LoopHeads {
  Linear qkv, out;
  HeadPlan plan;
  array gate, gate_bias;  // [heads, head_dim], [heads]
  int first_slot, second_slot;
  std::optional<Heads> step;  // of the first pass

  array gated(const array& q, const array& far, const array& near) const {
    const array logits = mx::add(mx::sum(mx::multiply(q, gate), -1), gate_bias);
    const array open = mx::expand_dims(kernels::activate(logits, Activation::sigmoid), -1);
    const array shut = mx::subtract(array(1.0f), open);
    const auto by_head = [&](const array& x) { return mx::reshape(x, q.shape()); };
    const array mixed = mx::add(mx::multiply(open, by_head(far)), mx::multiply(shut, by_head(near)));
    return mx::reshape(mixed, far.shape());
  }
};

struct FirstPass {
  std::shared_ptr<LoopHeads> heads;
  array operator()(const array& x, Step& step, const Residual& residual) const {
    heads->step = split_heads(heads->qkv(x), heads->plan, step);
    const auto& [q, k, v] = *heads->step;
    const float scale = 1.0f / std::sqrt(static_cast<float>(heads->plan.head_dim));
    return heads->out(attend(q, k, v, step, heads->first_slot, {.scale = scale}), residual);
  }
};

struct SecondPass {
  std::shared_ptr<LoopHeads> heads;
  array operator()(const array& x, Step& step, const Residual& residual) const {
    const auto [q, k, v] = split_heads(heads->qkv(x), heads->plan, step);
    const AttendOptions options{.scale = 1.0f / std::sqrt(static_cast<float>(heads->plan.head_dim))};
    // The first pass's keys are written to the same pages again, which changes nothing.
    const Heads before = *std::exchange(heads->step, std::nullopt);
    const array far = attend(q, before.k, before.v, step, heads->first_slot, options);
    if (fault("own keys of the second pass left out")) return heads->out(far, residual);
    const array near = attend(q, k, v, step, heads->second_slot, options);
    return heads->out(heads->gated(q, far, near), residual);
  }
};

Decoder build(const Config& c, const Weights& w) {
  if (const int passes = c.integer("loop_num", 1, 16, 2); passes != 2)
    fail(ErrorKind::unsupported, "{}: loop_num is {}: only two passes are supported", c.where(), passes);
  const auto d = Dims::from(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  const auto rope = Rope::from(c, d, {.theta = 500000.0f});
  const Bias bias = bias_if(c.get("attention_bias", false)), mlp_bias = bias_if(c.get("mlp_bias", false));
  const int window = c.integer("loop_window_size", 1, kMaxPositions, 64);
  const int q = d.heads * d.head_dim, kv = d.kv_heads * d.head_dim;

  std::vector<PreNorm> again;
  auto model = standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int i, const Weights& layer) {
    const Weights attention = layer / "self_attn";
    const Weights gate = w / fmt::format("model.gate_projections.{}", i);
    const KvSpec spec{.kv_heads = d.kv_heads, .key_dim = d.head_dim, .value_dim = d.head_dim};
    KvSpec own = spec;
    own.window = fault("window one too wide") ? window + 1 : window;
    if (rope.limit() > 0) w.layout().add_length_limit(rope.limit(), rope.grows());
    const auto heads = std::make_shared<LoopHeads>(
        LoopHeads{.qkv = attention.fused({"q_proj", "k_proj", "v_proj"}, {q, kv, kv}, d.hidden, bias),
                  .out = attention.linear("o_proj", d.hidden, q, bias),
                  .plan = {.heads = d.heads, .kv_heads = d.kv_heads, .head_dim = d.head_dim, .rope = rope},
                  .gate = gate.tensor("weight", {d.heads, d.head_dim}),
                  .gate_bias = gate.tensor("bias", {d.heads}),
                  .first_slot = w.layout().add_kv(spec),
                  .second_slot = w.layout().add_kv(own),
                  .step = {}});
    const PreNorm first{.mixer_norm = norm(layer, "input_layernorm"),
                        .mixer = FirstPass{heads},
                        .ffn_norm = norm(layer, "post_attention_layernorm"),
                        .ffn = GatedMlp(layer / "mlp", d.hidden, c.integer("intermediate_size", 1, kMaxWidth),
                                        Activation::silu, mlp_bias)};
    again.push_back({.mixer_norm = first.mixer_norm,
                     .mixer = SecondPass{heads},
                     .ffn_norm = first.ffn_norm,
                     .ffn = first.ffn});
    return first;
  });
  for (PreNorm& layer : again) model.add(std::move(layer));
  return model;
}

}  // namespace

Arch arch_iquestloopcoder() {
  return {
      .model_types = {"iquestloopcoder"},
      .gguf = {},
      .reference = "mlx-lm iquestloopcoder",
      .build = build,
      .weights = {},
      .tiny =
          R"({"model_type": "iquestloopcoder", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 50000.0, "loop_num": 2,
              "loop_window_size": 8, "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
