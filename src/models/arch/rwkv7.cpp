// RWKV-7 (Goose): every layer mixes a token with the one before it, remembers by a matrix per head that
// decays, is corrected and written to by channel, and passes on the first layer's values. Reference: mlx-lm
// rwkv7; Peng et al. 2025.
#include <memory>

#include "kernels/recurrent.h"
#include "models/kit.h"
#include "nn/delta.h"
#include "nn/fault.h"
#include "nn/moments.h"

namespace mlxcel {

namespace {

/// Each row's tokens one later; the row's last one is kept for the next step.
class TokenShift {
 public:
  TokenShift(const Weights& w, int hidden)
      : slot_(w.layout().add_recurrent({.name = "shift", .shape = {1, hidden}})) {
    std::vector<float> taps;
    for (int i = 0; i < hidden; ++i) taps.insert(taps.end(), {1.0f, 0.0f});
    taps_ = array(taps.data(), {hidden, 2}, mx::float32);
  }
  array operator()(const array& x, Step& step) const {
    const auto [before, last] = kernels::causal_conv(x, *taps_, std::nullopt, step.recurrent(slot_),
                                                     step.offsets(), Activation::none);
    step.set_recurrent(slot_, last);
    return before;
  }

 private:
  std::optional<array> taps_;
  int slot_;
};

/// out(activation(in(x))), both narrow in the middle.
struct LowRank {
  Linear in, out;
  Activation activation;
  array operator()(const array& x) const { return out(kernels::activate(in(x), activation)); }
};

LowRank low_rank(const Weights& w, const char* name, int hidden, int rank, Activation activation, Bias bias) {
  const Weights scope = w / name;
  return {.in = scope.linear("lora.0", rank, hidden, Bias::none),
          .out = scope.linear("lora.2", hidden, rank, bias),
          .activation = activation};
}

/// A vector per head, stored flat or by heads: [heads, head_dim].
array per_head(const Weights& w, const char* name, int heads, int head_dim) {
  const Shape shape{heads, head_dim};
  const auto stored = w.peek(name);
  if (stored && stored->shape == shape) return w.tensor(name, shape);
  const array flat = w.tensor(name, {heads * head_dim});
  return flat.is_available() ? array(flat.data<float>(), shape, mx::float32) : mx::zeros(shape);
}

struct Sizes {
  int hidden, heads, head_dim, decay_rank, rate_rank, value_rank, gate_rank;
};

class TimeMixing {
 public:
  TimeMixing(const Weights& w, const Sizes& s, bool first, std::shared_ptr<std::optional<array>> values)
      : s_(s),
        shift_(w, s.hidden),
        r_(w.linear("r_proj", s.hidden, s.hidden, Bias::none)),
        k_(w.linear("k_proj", s.hidden, s.hidden, Bias::none)),
        v_(w.linear("v_proj", s.hidden, s.hidden, Bias::none)),
        out_(w.linear("o_proj", s.hidden, s.hidden, Bias::none)),
        decay_(low_rank(w, "w_lora", s.hidden, s.decay_rank, Activation::tanh, Bias::required)),
        rate_(low_rank(w, "a_lora", s.hidden, s.rate_rank, Activation::none, Bias::required)),
        gate_(low_rank(w, "g_lora", s.hidden, s.gate_rank, Activation::sigmoid, Bias::none)),
        k_k_(per_head(w, "k_k", s.heads, s.head_dim)),
        k_a_(per_head(w, "k_a", s.heads, s.head_dim)),
        r_k_(per_head(w, "r_k", s.heads, s.head_dim)),
        norm_weight_(per_head(w, "g_norm.weight", s.heads, s.head_dim)),
        norm_bias_(per_head(w, "g_norm.bias", s.heads, s.head_dim)),
        slot_(w.layout().add_recurrent({.name = "wkv", .shape = {s.heads, s.head_dim, s.head_dim}})),
        values_(std::move(values)) {
    for (const char* name : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"})
      mix_.push_back(w.tensor(name, {s.hidden}));
    if (!first) blend_ = low_rank(w, "v_lora", s.hidden, s.value_rank, Activation::none, Bias::required);
  }

  array operator()(const array& x, Step& step, const Residual& residual) const {
    const int tokens = x.shape(0);
    const array change = mx::subtract(shift_(x, step), x);
    const auto mixed = [&](size_t i) { return mx::add(x, mx::multiply(change, mix_[i])); };
    const auto by_head = [&](const array& y) { return mx::reshape(y, {tokens, s_.heads, s_.head_dim}); };
    const auto open = [](const array& y) { return kernels::activate(y, Activation::sigmoid); };

    const array r = by_head(r_(mixed(0))), raw = by_head(k_(mixed(2))), xv = mixed(3);
    const array rate = by_head(open(rate_(mixed(4))));
    array v = by_head(v_(xv));
    if (!blend_)
      *values_ = v;
    else if (!fault("first values dropped"))
      v = mx::add(v, mx::multiply(mx::subtract(values_->value(), v), by_head(open((*blend_)(xv)))));
    const array fade = mx::multiply(open(decay_(mixed(1))), array(-0.606531f));
    const array decay = by_head(kernels::activate(fade, Activation::exp));
    const array direction = l2_norm(mx::multiply(raw, k_k_), 1e-14f);
    const array k =
        mx::multiply(raw, mx::add(mx::multiply(mx::subtract(rate, array(1.0f)), k_a_), array(1.0f)));

    const array read = mx::negative(direction);
    const auto [seen, state] =
        kernels::delta_scan({.decay = fault("memory never fades") ? mx::ones_like(decay) : decay,
                             .read = fault("delta rule without correction") ? mx::zeros_like(read) : read,
                             .write = mx::multiply(direction, rate),
                             .key = k,
                             .query = r,
                             .value = v},
                            step.recurrent(slot_), step.offsets());
    step.set_recurrent(slot_, state);

    const array normed = kernels::layer_norm(seen, std::nullopt, std::nullopt, 64e-5f);
    const array now = mx::multiply(row_sums(mx::multiply(mx::multiply(r, k), r_k_)), v);
    const array y = mx::add(mx::add(mx::multiply(normed, norm_weight_), norm_bias_), now);
    return out_(mx::multiply(mx::reshape(y, {tokens, s_.hidden}), gate_(mixed(5))), residual);
  }

 private:
  Sizes s_;
  TokenShift shift_;
  Linear r_, k_, v_, out_;
  LowRank decay_, rate_, gate_;
  std::optional<LowRank> blend_;
  array k_k_, k_a_, r_k_, norm_weight_, norm_bias_;
  std::vector<array> mix_;
  int slot_;
  std::shared_ptr<std::optional<array>> values_;  // of the first layer, this step
};

class ChannelMixing {
 public:
  ChannelMixing(const Weights& w, int hidden, int width)
      : shift_(w, hidden),
        mix_(w.tensor("x_k", {hidden})),
        key_(w.linear("key", width, hidden, Bias::none)),
        value_(w.linear("value", hidden, width, Bias::none)) {}

  array operator()(const array& x, Step& step, const Residual& residual) const {
    const array mixed = mx::add(x, mx::multiply(mx::subtract(shift_(x, step), x), mix_));
    return value_(kernels::activate(key_(mixed), Activation::relu2), residual);
  }

 private:
  TokenShift shift_;
  array mix_;
  Linear key_, value_;
};

/// Both sublayers look at the token before.
struct Layer {
  std::optional<LayerNorm> first;  // of the embedding
  LayerNorm norm, ffn_norm;
  TimeMixing mixer;
  ChannelMixing ffn;

  array operator()(const array& in, Step& step) const {
    const array h = first ? (*first)(in) : in;
    const array mixed = mixer(norm(h), step, h);
    return ffn(ffn_norm(mixed), step, mixed);
  }
};

Decoder build(const Config& c, const Weights& w) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("hidden_size", 1, kMaxWidth);
  d.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  const float eps = epsilon(c, "norm_eps", 1e-5f);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  Sizes s{.hidden = d.hidden,
          .heads = 0,
          .head_dim = c.integer("head_dim", 1, 8192, 64),
          .decay_rank = c.integer("decay_low_rank_dim", 1, kMaxWidth),
          .rate_rank = c.integer("a_low_rank_dim", 1, kMaxWidth),
          .value_rank = c.integer("v_low_rank_dim", 1, kMaxWidth),
          .gate_rank = c.integer("gate_low_rank_dim", 1, kMaxWidth)};
  if (d.hidden % s.head_dim != 0)
    fail(ErrorKind::bad_checkpoint, "{}: hidden_size {}: expected a multiple of head_dim {}", c.where(),
         d.hidden, s.head_dim);
  s.heads = d.hidden / s.head_dim;
  const auto values = std::make_shared<std::optional<array>>();

  Decoder model(d, w.embedding("model.embeddings", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(
        Layer{.first = i == 0 ? std::optional(layer.layer_norm("pre_norm", d.hidden, eps)) : std::nullopt,
              .norm = layer.layer_norm("attn_norm", d.hidden, eps),
              .ffn_norm = layer.layer_norm("ffn_norm", d.hidden, eps),
              .mixer = TimeMixing(layer / "attn", s, i == 0, values),
              .ffn = ChannelMixing(layer / "ffn", d.hidden, width)});
  model.finish(w.layer_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embeddings", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  return model;
}

}  // namespace

Arch arch_rwkv7() {
  return {.model_types = {"rwkv7"},
          .gguf = {"rwkv7"},
          .reference = "mlx-lm rwkv7",
          .build = build,
          .weights = {split("*.attn.x_rwkvag", {"*.attn.x_r", "*.attn.x_w", "*.attn.x_k", "*.attn.x_v",
                                                "*.attn.x_a", "*.attn.x_g"})},
          .tiny = R"({"model_type": "rwkv7", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "head_dim": 32, "norm_eps": 1e-5, "decay_low_rank_dim": 64,
              "a_low_rank_dim": 64, "v_low_rank_dim": 64, "gate_low_rank_dim": 64, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
