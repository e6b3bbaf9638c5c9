// Baichuan-M1: keys and values are mixed with those of the token before; layers with a window have heads of
// their own; the rows of the output matrix have length one. Reference: mlx-lm baichuan_m1.
#include <algorithm>
#include <cmath>

#include "kernels/recurrent.h"
#include "models/kit.h"
#include "nn/fault.h"
#include "state/attend.h"

namespace mlxcel {

namespace {

/// For each channel of keys, then values, the weights of the token before and of its own, on the host.
array taps_of(const Weights& w, const Dims& d) {
  std::vector<float> taps;
  for (const char* name : {"conv_k", "conv_v"}) {
    const array part = w.tensor(name, {d.kv_heads, 2});
    if (!part.is_available()) continue;
    for (int i = 0; i < d.kv_heads * d.head_dim; ++i)
      for (int tap = 0; tap < 2; ++tap)
        taps.push_back(part.data<float>()[static_cast<size_t>(i / d.head_dim * 2 + tap)]);
  }
  const Shape shape{2 * d.kv_heads * d.head_dim, 2};
  return taps.empty() ? mx::zeros(shape) : array(taps.data(), shape, mx::float32);
}

/// Reads W_pack, conv_k, conv_v, o_proj.
class TapAttention {
 public:
  TapAttention(const Weights& w, const Dims& d, const Rope& rope, int window)
      : d_(d),
        rope_(rope),
        in_(w.linear("W_pack", (d.heads + 2 * d.kv_heads) * d.head_dim, d.hidden, Bias::none)),
        out_(w.linear("o_proj", d.hidden, d.heads * d.head_dim, Bias::none)),
        taps_(taps_of(w, d)),
        before_(w.layout().add_recurrent({.name = "conv", .shape = {1, 2 * d.kv_heads * d.head_dim}})),
        slot_(w.layout().add_kv(
            {.kv_heads = d.kv_heads, .key_dim = d.head_dim, .value_dim = d.head_dim, .window = window})) {}

  array operator()(const array& x, Step& step, const Residual& residual) const {
    const array all = in_(x);
    const int tokens = x.shape(0), q_width = d_.heads * d_.head_dim, kv_width = d_.kv_heads * d_.head_dim;
    const array kv = mx::slice(all, {0, q_width}, {tokens, q_width + 2 * kv_width});
    const auto [taps, state] = kernels::causal_conv(kv, taps_, std::nullopt, step.recurrent(before_),
                                                    step.offsets(), Activation::none);
    step.set_recurrent(before_, state);
    const array mixed = fault("token before left out") ? kv : taps;
    const auto heads = [&](const array& from, int at, int count) {
      return mx::reshape(mx::slice(from, {0, at}, {tokens, at + count * d_.head_dim}),
                         {tokens, count, d_.head_dim});
    };
    const array q = rope_(heads(all, 0, d_.heads), step), k = rope_(heads(mixed, 0, d_.kv_heads), step);
    const float scale = 1.0f / std::sqrt(static_cast<float>(d_.head_dim));
    return out_(attend(q, k, heads(mixed, kv_width, d_.kv_heads), step, slot_,
                       {.scale = scale, .softcap = 0.0f, .sinks = {}}),
                residual);
  }

 private:
  Dims d_;
  Rope rope_;
  Linear in_, out_;
  array taps_;
  int before_, slot_;
};

/// Heads of the layers with a window, where the config gives them others.
Dims narrow_dims(const Config& c, const Dims& d) {
  Dims narrow = d;
  const auto own = [&](const char* key, int fallback) {
    const int count = c.is_null(key) ? 0 : c.integer(key, 0, kMaxHeads, 0);
    return count > 0 ? count : fallback;
  };
  narrow.heads = own("num_swa_attention_heads", d.heads);
  narrow.kv_heads = own("num_swa_key_value_heads", d.kv_heads);
  if (d.hidden % narrow.heads != 0 || narrow.heads % narrow.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: hidden_size {}, num_swa_attention_heads {}, num_swa_key_value_heads {}: not multiples",
         c.where(), d.hidden, narrow.heads, narrow.kv_heads);
  narrow.head_dim = d.hidden / narrow.heads;
  return narrow;
}

/// The output matrix with rows of length one; quantised ones were made so before they were quantised.
Linear unit_head(const Weights& w, const Dims& d) {
  Linear head = w.linear("lm_head", d.vocab, d.hidden, Bias::none);
  const auto stored = w.peek("lm_head.weight");
  if (!stored || stored->quantized()) return head;
  const array rows = to_float32(*stored);
  std::vector<float> values(rows.data<float>(), rows.data<float>() + rows.size());
  for (auto at = values.begin(); at != values.end(); at += d.hidden) {
    double squares = 0;
    for (int i = 0; i < d.hidden; ++i) squares += static_cast<double>(at[i]) * at[i];
    const float length = static_cast<float>(std::sqrt(squares)) + 1e-7f;
    for (int i = 0; i < d.hidden; ++i) at[i] /= length;
  }
  array unit = mx::astype(array(values.data(), {d.vocab, d.hidden}, mx::float32), stored->data.dtype());
  unit.eval();
  const Weight weight{stored->name, {d.vocab, d.hidden}, unit, std::nullopt, std::nullopt, std::nullopt};
  head.matrix = kernels::Matrix::concatenated({&weight, 1});
  return head;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c), narrow = narrow_dims(c, d);
  if (const int taps = c.integer("conv_window", 1, 16, 2); taps != 2)
    fail(ErrorKind::unsupported, "{}: conv_window is {}: only 2 is supported", c.where(), taps);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  const auto wide_rope = Rope::from(c, d), narrow_rope = Rope::from(c, narrow);
  const auto listed = c.get("sliding_window_layers", std::vector<int>{});
  const int window = c.integer("sliding_window", 1, kMaxPositions);

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers)) {
    const bool slides = std::find(listed.begin(), listed.end(), i) != listed.end();
    const int seen = fault("window one too wide") ? window + 1 : window;
    model.add(PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                      .mixer = TapAttention(layer / "self_attn", slides ? narrow : d,
                                            slides ? narrow_rope : wide_rope, slides ? seen : 0),
                      .ffn_norm = norm(layer, "post_attention_layernorm"),
                      .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none)});
  }
  const bool tie = c.get("tie_word_embeddings", false);
  model.finish(norm(w, "model.norm"),
               tie ? w.head_of(model.embedding(), "lm_head", "model.embed_tokens") : unit_head(w, d));
  return model;
}

}  // namespace

Arch arch_baichuan_m1() {
  return {
      .model_types = {"baichuan_m1"},
      .gguf = {},
      .reference = "mlx-lm baichuan_m1",
      .build = build,
      .weights = {},
      .tiny =
          R"({"model_type": "baichuan_m1", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
              "num_swa_attention_heads": 3, "num_swa_key_value_heads": 3, "sliding_window": 8,
              "sliding_window_layers": [0, 2], "conv_window": 2, "max_position_embeddings": 512,
              "rms_norm_eps": 1e-6, "rope_theta": 50000.0, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
