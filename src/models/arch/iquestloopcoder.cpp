// IQuest loop coder: the stack of layers is run twice. The second time each head mixes what it sees of the
// first pass's keys with a short window of its own, by a gate on its query. Reference: mlx-lm
// iquestloopcoder.
#include <cmath>
#include <memory>

#include "models/kit.h"
#include "nn/fault.h"
#include "nn/heads.h"
#include "nn/moments.h"
#include "state/attend.h"

namespace mlxcel {

namespace {

/// A layer's weights, which both passes use, and what the first leaves to the second within a step.
struct Shared {
  Dims d;
  RmsNorm norm, ffn_norm;
  Linear qkv, out;
  GatedMlp mlp;
  HeadPlan plan;
  int first_slot, second_slot;
  array gate_weight, gate_bias;  // [heads, head_dim], [heads]
  std::shared_ptr<std::optional<Heads>> seen;

  array attend_to(const array& q, const Heads& kept, Step& step, int slot) const {
    return attend(q, kept.k, kept.v, step, slot,
                  {.scale = 1.0f / std::sqrt(static_cast<float>(d.head_dim)), .softcap = 0.0f, .sinks = {}});
  }
  array rest(const array& attended, const array& h) const {
    const array mixed = out(attended, h);
    return mlp(ffn_norm(mixed), mixed);
  }
};

struct FirstPass {
  Shared layer;
  array operator()(const array& h, Step& step) const {
    const Heads now = split_heads(layer.qkv(layer.norm(h)), layer.plan, step);
    *layer.seen = now;
    return layer.rest(layer.attend_to(now.q, now, step, layer.first_slot), h);
  }
};

struct SecondPass {
  Shared layer;
  array operator()(const array& h, Step& step) const {
    const Heads now = split_heads(layer.qkv(layer.norm(h)), layer.plan, step);
    const int tokens = h.shape(0);
    const auto by_head = [&](const array& x) {
      return mx::reshape(x, {tokens, layer.d.heads, layer.d.head_dim});
    };
    // The first pass's keys are written once more where they stand, which changes nothing.
    const array global = by_head(layer.attend_to(now.q, layer.seen->value(), step, layer.first_slot));
    const array local = by_head(layer.attend_to(now.q, now, step, layer.second_slot));
    const array logits =
        mx::add(row_sums(mx::multiply(now.q, layer.gate_weight)), mx::expand_dims(layer.gate_bias, -1));
    const array gate = kernels::activate(logits, Activation::sigmoid);
    const array mixed =
        mx::add(mx::multiply(gate, global), mx::multiply(mx::subtract(array(1.0f), gate), local));
    const array attended = fault("second pass sees no first") ? local : mixed;
    return layer.rest(mx::reshape(attended, {tokens, layer.d.heads * layer.d.head_dim}), h);
  }
};

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  if (const int loops = c.integer("loop_num", 1, 64, 2); loops != 2)
    fail(ErrorKind::unsupported, "{}: loop_num {}: expected 2", c.where(), loops);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto rope = Rope::from(c, d, {.theta = 500000.0f});
  const int window = c.integer("loop_window_size", 1, kMaxPositions, 64);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const Bias bias = bias_if(c.get("attention_bias", false)), mlp_bias = bias_if(c.get("mlp_bias", false));
  const int q = d.heads * d.head_dim, kv = d.kv_heads * d.head_dim;
  const KvSpec spec{.kv_heads = d.kv_heads, .key_dim = d.head_dim, .value_dim = d.head_dim};
  KvSpec local = spec;
  local.window = fault("window ignored") ? 0 : window;
  if (rope.limit() > 0) w.layout().add_length_limit(rope.limit(), rope.grows());

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden));
  std::vector<Shared> layers;
  for (const auto& [i, layer] : w.layers("model.layers", d.layers)) {
    const Weights attention = layer / "self_attn", gate = w / fmt::format("model.gate_projections.{}", i);
    layers.push_back(
        {.d = d,
         .norm = layer.rms_norm("input_layernorm", d.hidden, eps),
         .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
         .qkv = attention.fused({"q_proj", "k_proj", "v_proj"}, {q, kv, kv}, d.hidden, bias),
         .out = attention.linear("o_proj", d.hidden, q, bias),
         .mlp = GatedMlp(layer / "mlp", d.hidden, width, Activation::silu, mlp_bias),
         .plan = {.heads = d.heads, .kv_heads = d.kv_heads, .head_dim = d.head_dim, .rope = rope},
         .first_slot = w.layout().add_kv(spec),
         .second_slot = w.layout().add_kv(local),
         .gate_weight = gate.tensor("weight", {d.heads, d.head_dim}),
         .gate_bias = gate.tensor("bias", {d.heads}),
         .seen = std::make_shared<std::optional<Heads>>()});
  }
  for (const Shared& layer : layers) model.add(FirstPass{layer});
  for (const Shared& layer : layers) model.add(SecondPass{layer});
  model.finish(w.rms_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(), tied(c, false)));
  return model;
}

}  // namespace

Arch arch_iquestloopcoder() {
  return {
      .model_types = {"iquestloopcoder"},
      .reference = "mlx-lm iquestloopcoder",
      .build = build,
      .tiny =
          R"({"model_type": "iquestloopcoder", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": true,
              "mlp_bias": true, "loop_num": 2, "loop_window_size": 8, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
