// RecurrentGemma (Griffin): gated linear recurrences behind a short convolution, local attention every third
// layer, norms stored around zero. Reference: transformers RecurrentGemmaForCausalLM; De et al. 2024.
#include <cmath>

#include "kernels/recurrent.h"
#include "models/kit.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

struct Sizes {
  int hidden, width, heads, taps;
  Activation activation;
};

/// -8 softplus(a) of the stored parameter, on the host.
array rates(const array& stored) {
  if (!stored.is_available()) return stored;
  std::vector<float> values(stored.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = -8.0f * std::log1p(std::exp(stored.data<float>()[i]));
  return array(values.data(), stored.shape(), mx::float32);
}

/// out(h * activation(y(x))), h the recurrence h = a h + sqrt(1 - a^2) gate u over u = conv(x(x)).
class RecurrentBlock {
 public:
  RecurrentBlock(const Weights& w, const Sizes& s)
      : s_(s),
        in_(w.fused({"linear_y", "linear_x"}, {s.width, s.width}, s.hidden, Bias::required)),
        out_(w.linear("linear_out", s.hidden, s.width, Bias::required)),
        conv_weight_(w.tensor("conv_1d.weight", {s.width, s.taps})),
        conv_bias_(w.tensor("conv_1d.bias", {s.width})),
        rate_(rates(w.tensor("rg_lru.recurrent_param", {s.width}))),
        input_bias_(w.tensor("rg_lru.input_gate_bias", {s.heads, s.width / s.heads})),
        decay_bias_(w.tensor("rg_lru.recurrent_gate_bias", {s.heads, s.width / s.heads})),
        input_((w / "rg_lru").bank("input_gate", s.heads, s.width / s.heads, s.width / s.heads)),
        decay_((w / "rg_lru").bank("recurrent_gate", s.heads, s.width / s.heads, s.width / s.heads)),
        conv_slot_(w.layout().add_recurrent({.name = "conv", .shape = {s.taps - 1, s.width}})),
        state_slot_(w.layout().add_recurrent({.name = "lru", .shape = {s.width}})) {}

  array operator()(const array& x, Step& step, const Residual& residual) const {
    const int tokens = x.shape(0);
    const array both = in_(x);
    const array y = kernels::activate(mx::slice(both, {0, 0}, {tokens, s_.width}), s_.activation);
    const auto [u, conv_state] =
        kernels::causal_conv(mx::slice(both, {0, s_.width}, {tokens, 2 * s_.width}), conv_weight_, conv_bias_,
                             step.recurrent(conv_slot_), step.offsets(), Activation::none);
    step.set_recurrent(conv_slot_, conv_state);

    const array log_decay = mx::multiply(gate(u, decay_, decay_bias_), rate_);
    const array decay = kernels::activate(log_decay, Activation::exp);
    const array square = kernels::activate(mx::multiply(log_decay, array(2.0f)), Activation::exp);
    // A text's first token comes in whole.
    const array first = mx::equal(mx::expand_dims(step.positions(), 1), array(0));
    const array keep = mx::where(first, array(1.0f), mx::sqrt(mx::subtract(array(1.0f), square)));
    const array input = mx::multiply(mx::multiply(u, gate(u, input_, input_bias_)), keep);
    const auto [h, state] =
        kernels::gated_sum(input, fault("memory never fades") ? mx::ones_like(decay) : decay,
                           step.recurrent(state_slot_), step.offsets());
    step.set_recurrent(state_slot_, state);
    return out_(fault("output gate left out") ? h : mx::multiply(h, y), residual);
  }

 private:
  /// sigmoid of a matrix per head
  array gate(const array& u, const Linear& bank, const array& bias) const {
    const int tokens = u.shape(0);
    const array heads = mx::contiguous(mx::broadcast_to(mx::arange(s_.heads, mx::int32), {tokens, s_.heads}));
    const array product = bank.gather(mx::reshape(u, {tokens, s_.heads, s_.width / s_.heads}), heads);
    const array sum = mx::add(product, bias);
    return mx::reshape(kernels::activate(sum, Activation::sigmoid), {tokens, s_.width});
  }

  Sizes s_;
  Linear in_, out_;
  array conv_weight_, conv_bias_, rate_, input_bias_, decay_bias_;
  Linear input_, decay_;
  int conv_slot_, state_slot_;
};

std::vector<std::string> kinds(const Config& c) {
  auto list = c.get<std::vector<std::string>>("block_types", {"recurrent", "recurrent", "attention"});
  for (const auto& kind : list)
    if (kind != "recurrent" && kind != "attention")
      fail(ErrorKind::unsupported,
           "{}: block_types: \"{}\" is not supported: expected recurrent or attention", c.where(), kind);
  if (list.empty()) fail(ErrorKind::bad_checkpoint, "{}: block_types: expected at least one", c.where());
  return list;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const Sizes sizes{
      .hidden = d.hidden,
      .width = c.integer("lru_width", 1, kMaxWidth, d.hidden),
      .heads = d.heads,
      .taps = c.integer("conv1d_width", 2, 16, 4),
      .activation = activation_from(c.get<std::string>("hidden_activation", "gelu_pytorch_tanh"))};
  if (sizes.width % d.heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: lru_width {}: expected a multiple of num_attention_heads {}",
         c.where(), sizes.width, d.heads);
  const int ffn = c.integer("intermediate_size", 2, kMaxWidth) / 2;  // as published: of both halves
  const AttentionOptions attention{.rope = Rope::from(c, d, {.part = 0.5f}),
                                   .window = c.integer("attention_window_size", 1, kMaxPositions, 2048),
                                   .qkv_bias = bias_if(c.get("attention_bias", false)),
                                   .out_bias = Bias::required};
  const auto pattern = kinds(c);
  const auto mixer = [&](int i, const Weights& scope) {
    if (pattern[static_cast<size_t>(i) % pattern.size()] == "attention")
      return Mixer(Attention(scope, d, attention));
    return Mixer(RecurrentBlock(scope, sizes));
  };

  // Rounded to bf16 whatever the weights' type.
  const auto scale = static_cast<float>(mx::bfloat16_t(std::sqrt(static_cast<float>(d.hidden))));
  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden, scale));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm("temporal_pre_norm", d.hidden, eps, 1.0f),
                      .mixer = mixer(i, layer / "temporal_block"),
                      .ffn_norm = layer.rms_norm("channel_pre_norm", d.hidden, eps, 1.0f),
                      .ffn = GatedMlp(layer / "mlp_block", d.hidden, ffn, sizes.activation, Bias::required)});
  model.finish(w.rms_norm("model.final_norm", d.hidden, eps, 1.0f),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", true))));
  model.softcap(c.get("logits_soft_cap", 30.0f));
  return model;
}

}  // namespace

Arch arch_recurrent_gemma() {
  return {
      .model_types = {"recurrent_gemma", "griffin"},
      .reference = "transformers RecurrentGemmaForCausalLM",
      .build = build,
      .weights = {rename("*_gate_weight", "*_gate.weight"), transpose("*.rg_lru.*_gate.weight")},
      .tiny =
          R"({"model_type": "recurrent_gemma", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 512,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1, "lru_width": 96,
              "conv1d_width": 4, "attention_window_size": 8, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "block_types": ["recurrent", "attention"],
              "hidden_activation": "gelu_pytorch_tanh", "attention_bias": true, "logits_soft_cap": 5.0,
              "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
