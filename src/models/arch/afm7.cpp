// Apple's on-device model: keys and values rounded to eight bits by learned steps; the last layers have
// queries alone and read the keys and values of the last layer before them. Reference: mlx-lm afm7.
#include <cmath>
#include <memory>

#include "models/kit.h"
#include "nn/fault.h"
#include "nn/shared_attention.h"
#include "state/attend.h"

namespace mlxcel {

namespace {

/// x as eight-bit numbers of steps.
array rounded(const array& x, const array& step) {
  const array whole = mx::clip(mx::round(mx::divide(x, step)), array(-128.0f), array(127.0f));
  return fault("steps of keys and values dropped") ? whole : mx::multiply(whole, step);
}

/// Reads qkv_proj, q_norm, k_norm, the two steps and out_proj; a reader q_proj, q_norm and out_proj.
class RoundedAttention {
 public:
  RoundedAttention(const Weights& w, const Dims& d, const Rope& rope, std::shared_ptr<SharedKeys> keys,
                   bool owner)
      : d_(d),
        rope_(rope),
        q_norm_(w.rms_norm("q_norm", d.head_dim, 1e-5f)),
        out_(w.linear("out_proj", d.hidden, d.heads * d.head_dim, Bias::none)),
        keys_(std::move(keys)) {
    const int q = d.heads * d.head_dim, kv = d.kv_heads * d.head_dim;
    in_ = owner ? w.linear("qkv_proj", q + 2 * kv, d.hidden, Bias::none)
                : w.linear("q_proj", q, d.hidden, Bias::none);
    if (owner) {
      own_ = Own{.k_norm = w.rms_norm("k_norm", d.head_dim, 1e-5f),
                 .key_step = w.tensor("quant_key_scale", {1}),
                 .value_step = w.tensor("quant_value_scale", {1})};
      keys_->slot =
          w.layout().add_kv({.kv_heads = d.kv_heads, .key_dim = d.head_dim, .value_dim = d.head_dim});
    }
    slot_ = keys_->slot;
  }

  array operator()(const array& x, Step& step, const Residual& residual) const {
    const array all = in_(x);
    const int q_width = d_.heads * d_.head_dim, kv_width = d_.kv_heads * d_.head_dim;
    const auto part = [&](int from, int heads) {
      const array some = mx::slice(all, {0, from}, {all.shape(0), from + heads * d_.head_dim});
      return mx::reshape(some, {all.shape(0), heads, d_.head_dim});
    };
    if (own_) {
      keys_->k = rounded(own_->k_norm(rope_(part(q_width, d_.kv_heads), step)), own_->key_step);
      keys_->v = rounded(part(q_width + kv_width, d_.kv_heads), own_->value_step);
    }
    const array q = q_norm_(rope_(part(0, d_.heads), step));
    const float scale = 1.0f / std::sqrt(static_cast<float>(d_.head_dim));
    // A reader writes the same keys to the same pages again, which changes nothing.
    return out_(attend(q, keys_->k.value(), keys_->v.value(), step, slot_,
                       {.scale = scale, .softcap = 0.0f, .sinks = {}}),
                residual);
  }

 private:
  struct Own {
    RmsNorm k_norm;
    array key_step, value_step;
  };
  Dims d_;
  Rope rope_;
  Linear in_;
  RmsNorm q_norm_;
  Linear out_;
  std::shared_ptr<SharedKeys> keys_;
  std::optional<Own> own_;
  int slot_ = -1;
};

Dims dims_of(const Config& c) {
  Dims d{.vocab = c.integer("vocab_size", 1, kMaxVocab),
         .hidden = c.integer("hidden_dim", 1, kMaxWidth),
         .layers = c.integer("num_layers", 2, kMaxLayers),
         .heads = c.integer("num_heads", 1, kMaxHeads),
         .kv_heads = c.integer("num_kv_heads", 1, kMaxHeads)};
  if (d.hidden % d.heads != 0 || d.heads % d.kv_heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: hidden_dim {}, num_heads {}, num_kv_heads {}: not multiples",
         c.where(), d.hidden, d.heads, d.kv_heads);
  d.head_dim = d.hidden / d.heads;
  return d;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims_of(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-5f));
  const auto rope = Rope::from(c, d, {.theta = 50000.0f, .interleaved = true});
  const int readers = c.integer("num_kv_reuse_layers", 0, d.layers - 1);
  const float widening = factor(c, "hidden_dim_scale_factor", 3.25f);
  const int inner = static_cast<int>(static_cast<float>(d.hidden) * widening);

  auto keys = std::make_shared<SharedKeys>();
  const auto block = [&](const Weights& layer, bool owner) {
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = RoundedAttention(layer / "self_attn", d, rope, keys, owner),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = GatedMlp(layer / "mlp", d.hidden, inner, Activation::silu)};
  };
  Decoder model(d, w.embedding("model.embedding", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers - readers)) {
    keys = std::make_shared<SharedKeys>();
    model.add(block(layer, true));
  }
  for (const auto& [i, layer] : w.layers("model.kv_reuse_layers", readers)) model.add(block(layer, false));
  model.finish(norm(w, "model.output_norm"), w.head_of(model.embedding(), "lm_head", "model.embedding"));
  return model;
}

}  // namespace

Arch arch_afm7() {
  return {.model_types = {"afm7"},
          .gguf = {},
          .reference = "mlx-lm afm7",
          .build = build,
          .weights = {},
          .tiny = R"({"model_type": "afm7", "vocab_size": 256, "hidden_dim": 192, "num_layers": 4,
              "num_kv_reuse_layers": 2, "num_heads": 6, "num_kv_heads": 2, "hidden_dim_scale_factor": 2.0,
              "rope_theta": 50000.0, "rms_norm_eps": 1e-5})"};
}

}  // namespace mlxcel
