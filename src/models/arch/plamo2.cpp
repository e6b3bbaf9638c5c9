// PLaMo 2: state-space layers that choose their steps, inputs and outputs through normed projections,
// windowed attention in between, norms on both sides of every sublayer. Reference: mlx-lm plamo2, and for the
// window (which mlx-lm leaves out) the publisher's modeling_plamo.
#include <algorithm>
#include <cmath>

#include "kernels/recurrent.h"
#include "models/kit.h"
#include "nn/delta.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

struct ScanSizes {
  int hidden, heads, head_dim, state, taps, rank;
  float eps;
  int inner() const { return heads * head_dim; }
};

/// Reads in_proj (gate and input, head by head), conv1d, bcdt_proj, the norms of B, C and dt, dt_proj,
/// dt_bias, A_log, D, out_proj.
class ChosenScan {
 public:
  ChosenScan(const Weights& w, const ScanSizes& sizes)
      : s_(sizes),
        in_(w.linear("in_proj", 2 * s_.inner(), s_.hidden, Bias::none)),
        choice_(w.linear("bcdt_proj", s_.rank + 2 * s_.state, s_.inner(), Bias::none)),
        dt_(w.linear("dt_proj", s_.heads, s_.rank, Bias::none)),
        out_(w.linear("out_proj", s_.hidden, s_.inner(), Bias::none)),
        conv_(w.tensor("conv1d.weight", {s_.inner(), s_.taps})),
        dt_bias_(w.tensor("dt_bias", {s_.heads})),
        rate_(negative_exp(w.tensor("A_log", {s_.heads}))),
        d_(w.tensor("D", {s_.heads})),
        b_norm_{w.tensor("B_norm_weight", {s_.state}), s_.eps},
        c_norm_{w.tensor("C_norm_weight", {s_.state}), s_.eps},
        dt_norm_{w.tensor("dt_norm_weight", {s_.rank}), s_.eps},
        conv_slot_(w.layout().add_recurrent({.name = "conv", .shape = {s_.taps - 1, s_.inner()}})),
        scan_slot_(w.layout().add_recurrent({.name = "ssm", .shape = {s_.heads, s_.head_dim, s_.state}})) {}

  array operator()(const array& x, Step& step) const {
    const int tokens = x.shape(0);
    const array both = mx::reshape(in_(x), {tokens, s_.heads, 2, s_.head_dim});
    const auto half = [&](int at) {
      const array part = mx::slice(both, {0, 0, at, 0}, {tokens, s_.heads, at + 1, s_.head_dim});
      return mx::reshape(part, {tokens, s_.inner()});
    };
    const auto [mixed, kept] = kernels::causal_conv(half(1), conv_, std::nullopt, step.recurrent(conv_slot_),
                                                    step.offsets(), Activation::silu);
    step.set_recurrent(conv_slot_, kept);
    const array chosen = choice_(mixed);
    const auto part = [&](int from, int width, const RmsNorm& norm) {
      const array y = mx::slice(chosen, {0, from}, {tokens, from + width});
      return fault("norms of the scan left out") ? y : norm(y);
    };
    const array dt = time_step(dt_(part(2 * s_.state, s_.rank, dt_norm_)), dt_bias_);
    const auto group = [&](const array& y) { return mx::reshape(y, {tokens, 1, s_.state}); };
    const auto [scanned, state] = kernels::ssm_scan(
        mx::reshape(mixed, {tokens, s_.heads, s_.head_dim}), dt, rate_, group(part(0, s_.state, b_norm_)),
        group(part(s_.state, s_.state, c_norm_)), d_, step.recurrent(scan_slot_), step.offsets());
    step.set_recurrent(scan_slot_, state);
    const array y = mx::reshape(scanned, {tokens, s_.inner()});
    if (fault("gate of the scan left out")) return out_(y);
    return out_(mx::multiply(kernels::activate(half(0), Activation::silu), y));
  }

 private:
  ScanSizes s_;
  Linear in_, choice_, dt_, out_;
  array conv_, dt_bias_, rate_, d_;
  RmsNorm b_norm_, c_norm_, dt_norm_;
  int conv_slot_, scan_slot_;
};

/// In each run of mamba_step layers the middle one attends; of very few layers the last one.
bool scans(const Config& c, int layer, int layers) {
  if (!c.get("mamba_enabled", true)) return false;
  const int run = c.integer("mamba_step", 2, kMaxLayers, 2);
  return layers <= run / 2 ? layer != layers - 1 : layer % run != run / 2;
}

Decoder build(const Config& c, const Weights& w) {
  auto d = Dims::from(c, {.kv_heads = 4, .head_dim = 128});
  d.head_dim = c.integer("hidden_size_per_head", 2, 8192, 128);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const ScanSizes scan{.hidden = d.hidden,
                       .heads = c.integer("mamba_num_heads", 1, kMaxHeads, 64),
                       .head_dim = d.head_dim,
                       .state = c.integer("mamba_d_state", 1, 4096, 64),
                       .taps = c.integer("mamba_d_conv", 2, 16, 4),
                       .rank = std::max(64, d.hidden / 16),
                       .eps = eps};
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 13312);
  // The window counts the tokens before a query.
  const int window = c.integer("attention_window_size", 1, kMaxPositions - 1, 2048) + 1;
  const auto whole = c.get("full_attention_idx", std::vector<int>{});
  for (const int i : whole)
    if (i >= d.layers)
      fail(ErrorKind::bad_checkpoint, "{}: full_attention_idx: expected layers 0 to {}, found {}", c.where(),
           d.layers - 1, i);
  const float theta = factor(c, "rope_theta", 10000.0f);
  if (theta <= 1.0f || d.head_dim % 2 != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: rope_theta {} for heads of {}: expected more than 1, and an even number of entries", c.where(),
         theta, d.head_dim);
  const auto rope = Rope::plain(d.head_dim, theta);
  const auto mixer = [&](int i, const Weights& at) {
    if (scans(c, i, d.layers)) return Mixer(ChosenScan(at, scan));
    const bool all = std::find(whole.begin(), whole.end(), i) != whole.end();
    return Mixer(
        Attention(at, d,
                  {.rope = rope,
                   .qk_norm = HeadNormOptions{.eps = 1e-6f, .over = HeadNormOptions::Over::each_head},
                   .window = all ? 0 : window,
                   .qkv_bias = Bias::none,
                   .out_bias = Bias::none,
                   .fused = "qkv_proj"}));
  };
  const auto norm = [&](float offset) { return rms_norms(d.hidden, eps, offset); };
  return standard_decoder(w, d, norm(1.0f), {.tie = tied(c, true)}, [&](int i, const Weights& layer) {
    return Sandwich{.mixer_norm = norm(1.0f)(layer, "pre_mixer_norm"),
                    .mixer = mixer(i, layer / "mixer"),
                    .after_mixer = norm(1.0f / 5.0f)(layer, "post_mixer_norm"),
                    .ffn_norm = norm(1.0f)(layer, "pre_mlp_norm"),
                    .ffn = GatedMlp(layer / "mlp", d.hidden, width, Activation::silu, Bias::none),
                    .after_ffn = norm(1.0f / std::pow(5.0f, 1.5f))(layer, "post_mlp_norm")};
  });
}

std::vector<Rule> weights(const Config& c, const Source&) {
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 13312);
  return {
      rename("model.layers.layers.*", "model.layers.*"), rename("*.mixer.q_weight", "*.mixer.q_norm.weight"),
      rename("*.mixer.k_weight", "*.mixer.k_norm.weight"),
      split("*.mlp.gate_up_proj.weight", {"*.mlp.gate_proj.weight", "*.mlp.up_proj.weight"}, {width, width})};
}

}  // namespace

Arch arch_plamo2() {
  return {.model_types = {"plamo2"},
          .gguf = {"plamo2"},
          .reference = "mlx-lm plamo2, its window from the publisher's modeling_plamo",
          .build = build,
          .weights = weights,
          .tiny = R"({"model_type": "plamo2", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
              "hidden_size_per_head": 32, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "attention_window_size": 8, "full_attention_idx": [3], "mamba_d_state": 20, "mamba_d_conv": 4,
              "mamba_num_heads": 4, "mamba_step": 2, "mamba_enabled": true, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
