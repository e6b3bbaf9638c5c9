// Moondream 1 to 3: the text side, where one LayerNorm feeds attention and MLP side by side, as in Phi 1.5.
// In Moondream 3 queries and values are scaled by place and content, and later layers have experts.
// Reference: mlx-vlm moondream2, moondream3.
#include <cmath>
#include <utility>

#include "models/kit.h"

namespace mlxcel {

namespace {

/// q and v of a head times tanh(w . gelu(qkv)) + 1/2 + sigmoid(alpha ln(1 + position)).
class ScaledAttention {
 public:
  ScaledAttention(const Weights& w, const Dims& d, const Rope& rope, Bias bias)
      : plan_{.heads = d.heads, .kv_heads = d.kv_heads, .head_dim = d.head_dim, .rope = rope},
        qkv_(w.linear("qkv", 3 * d.heads * d.head_dim, d.hidden, bias)),
        out_(w.linear("proj", d.hidden, d.heads * d.head_dim, bias)),
        content_(w.fused({"tau.wq", "tau.wv"}, {d.heads, d.heads}, 3 * d.heads * d.head_dim, Bias::none)),
        alpha_(w.tensor("tau.alpha", {d.heads})),
        slot_(w.layout().add_kv({.kv_heads = d.kv_heads, .key_dim = d.head_dim, .value_dim = d.head_dim})) {}

  array operator()(const array& x, Step& step, const Residual& residual) const {
    const array qkv = qkv_(x);
    const array content =
        kernels::activate(content_(kernels::activate(qkv, Activation::gelu)), Activation::tanh);
    const array far = mx::expand_dims(mx::log1p(mx::astype(step.positions(), mx::float32)), -1);
    const array place =
        mx::add(kernels::activate(mx::multiply(far, alpha_), Activation::sigmoid), array(0.5f));
    const auto by_head = mx::split(content, 2, -1);
    const auto factors = [&](const array& own) { return mx::expand_dims(mx::add(own, place), -1); };
    const auto [q, k, v] = split_heads(qkv, plan_, step);
    // The rotation keeps lengths, so q may be scaled behind it.
    const array seen = attend(mx::multiply(q, factors(by_head[0])), k, mx::multiply(v, factors(by_head[1])),
                              step, slot_, {.scale = 1.0f / std::sqrt(static_cast<float>(plan_.head_dim))});
    return out_(seen, residual);
  }

 private:
  HeadPlan plan_;
  Linear qkv_, out_, content_;
  array alpha_;
  int slot_;
};

/// Experts whose halves meet as gelu(first) * (second + 1).
class Experts {
 public:
  Experts(const Weights& w, int hidden, const MoeOptions& o)
      : router_(w, hidden, o),
        in_(w.bank("fc1", o.experts, 2 * o.width, hidden)),
        out_(w.bank("fc2", o.experts, hidden, o.width)) {}
  array operator()(const array& x) const {
    const auto [chosen, weights] = router_(x);
    const auto halves = mx::split(in_.gather(x, chosen), 2, -1);
    const array inner =
        mx::multiply(kernels::activate(halves[0], Activation::gelu), mx::add(halves[1], array(1.0f)));
    return kernels::weighted_sum(out_.gather(inner, chosen), weights);
  }

 private:
  ExpertRouter router_;
  Linear in_, out_;
};

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_experts", 1, 4096, 64);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 8);
  moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth / 2, 1024);
  moe.router = "router";
  moe.router_bias = Bias::required;
  moe.scoring = Scoring::chosen_softmax;
  return moe;
}

Rope third_rope(const Config& c, const Dims& d) {
  const int rotated = c.integer("rope_dim", 2, d.head_dim, 32);
  if (rotated % 2 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: rope_dim {}: expected an even number", c.where(), rotated);
  return Rope::plain(rotated, factor(c, "rope_theta", 1.5e6f));
}

Decoder build(const Config& whole, const Weights& w) {
  const bool third = whole.get<std::string>("model_type") == "moondream3";
  const Config c = text_config(whole);  // published files have none: all sizes are the family's
  const auto d = Dims::from(
      c, {.vocab = 51200, .hidden = 2048, .layers = 24, .heads = 32, .max_positions = third ? 4096 : 2048});
  if (third && d.kv_heads != d.heads)
    fail(ErrorKind::unsupported, "{}: num_key_value_heads {}: expected {}, the number of heads", c.where(),
         d.kv_heads, d.heads);
  const auto norm = layer_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-5f));
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 4 * d.hidden);
  const auto rope = third ? third_rope(c, d) : Rope::from(c, d, {.part = 0.5f});
  const Bias bias = c.get("attention_bias", true) ? Bias::required : Bias::none;
  const int dense = third ? c.integer("moe_start_layer", 0, kMaxLayers, 4) : d.layers;
  if (whole.has("vision_config") || !whole.has("text_config"))
    w.warn("the text side alone is served: the vision tower is left out, images are refused");

  Decoder model(d, w.embedding("text.wte", d.vocab, d.hidden));
  const auto mixer = [&](const Weights& scope) -> Mixer {
    if (third) return ScaledAttention(scope, d, rope, bias);
    return Attention(scope, d,
                     {.rope = rope, .qkv_bias = bias, .out_bias = bias, .fused = "qkv", .out = "proj"});
  };
  const auto ffn = [&](int i, const Weights& scope) -> Ffn {
    if (i >= dense) return Experts(scope, d.hidden, experts(c));
    return Mlp(scope, "fc1", "fc2", d.hidden, width, Activation::gelu_tanh, Bias::required);
  };
  for (const auto& [i, layer] : w.layers("text.blocks", d.layers))
    model.add(
        Parallel{.norm = norm(layer, "ln"), .mixer = mixer(layer / "attn"), .ffn = ffn(i, layer / "mlp")});
  model.finish(norm(w, "text.post_ln"), w.linear("text.lm_head", d.vocab, d.hidden, Bias::required));
  return model;
}

/// The newest published names; older ones, and those of converted files, become them.
std::vector<Rule> rules() {
  std::vector<Rule> list;
  for (const char* tower : {"vision.*", "vision_encoder.*", "vision_model.*", "region.*", "region_model.*"}) {
    list.push_back(drop(tower));
    list.push_back(drop(std::string("model.") + tower));
  }
  const std::pair<const char*, const char*> names[] = {{"model.text.*", "text.*"},
                                                       {"text_model.transformer.embd.wte.*", "text.wte.*"},
                                                       {"text_model.transformer.h.*", "text.blocks.*"},
                                                       {"text_model.lm_head.ln.*", "text.post_ln.*"},
                                                       {"text_model.lm_head.linear.*", "text.lm_head.*"},
                                                       {"text.model.embed_tokens.*", "text.wte.*"},
                                                       {"text.model.layers.*", "text.blocks.*"},
                                                       {"text.model.*", "text.*"},
                                                       {"text.wte", "text.wte.weight"},
                                                       {"*.mixer.Wqkv.*", "*.attn.qkv.*"},
                                                       {"*.mixer.out_proj.*", "*.attn.proj.*"},
                                                       {"*.tau.wq", "*.tau.wq.weight"},
                                                       {"*.tau.wv", "*.tau.wv.weight"}};
  for (const auto& [from, to] : names) list.push_back(rename(from, to));
  return list;
}

}  // namespace

Arch arch_moondream() {
  return {.model_types = {"moondream3", "moondream2", "moondream1", "moondream"},
          .reference = "mlx-vlm moondream2, moondream3",
          .build = build,
          .weights = rules(),
          .tiny = R"({"model_type": "moondream3", "text_config": {"vocab_size": 256, "hidden_size": 192,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6, "head_dim": 32,
              "rope_dim": 16, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "num_experts": 6,
              "num_experts_per_tok": 3, "moe_intermediate_size": 64, "moe_start_layer": 1,
              "max_position_embeddings": 512}})"};
}

}  // namespace mlxcel
