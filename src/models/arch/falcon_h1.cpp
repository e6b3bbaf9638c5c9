// Falcon-H1: attention and a Mamba 2 scan side by side, both reading the same normed input, with fixed
// multipliers all over. MLX's conversions have most of them in the weights already, which the convolution's
// layout tells. Reference: transformers FalconH1ForCausalLM.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

struct Multipliers {
  float embedding = 1, head = 1, attention_in = 1, attention_out = 1, key = 1, ssm_in = 1, ssm_out = 1;
  float mlp_gate = 1, mlp_down = 1;
  std::vector<float> ssm = {1, 1, 1, 1, 1};  // gate, x, B, C, dt
};

float number(const Config& c, const char* key) {
  const float value = c.get(key, 1.0f);
  if (!std::isfinite(value))
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected a number, found {}", c.where(), key, value);
  return value;
}

std::vector<float> numbers(const Config& c, const char* key, size_t count) {
  auto list = c.get<std::vector<float>>(key, std::vector<float>(count, 1.0f));
  if (list.size() != count)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected {} numbers, found {}", c.where(), key, count,
         list.size());
  return list;
}

Multipliers multipliers(const Config& c, bool folded) {
  Multipliers m{.embedding = number(c, "embedding_multiplier"),
                .head = number(c, "lm_head_multiplier"),
                .attention_in = number(c, "attention_in_multiplier"),
                .attention_out = number(c, "attention_out_multiplier"),
                .key = number(c, "key_multiplier"),
                .ssm_in = number(c, "ssm_in_multiplier"),
                .ssm_out = number(c, "ssm_out_multiplier")};
  const auto mlp = numbers(c, "mlp_multipliers", 2);
  m.mlp_gate = mlp[0];
  m.mlp_down = mlp[1];
  m.ssm = numbers(c, "ssm_multipliers", 5);
  // Folded are those of queries and keys, not of the values; nor the keys' own.
  if (folded) m = {.attention_out = m.attention_in, .key = m.key};
  return m;
}

Mamba2Options mamba(const Config& c, int hidden, float eps, const Multipliers& m) {
  Mamba2Options o{.hidden = hidden, .eps = eps};
  const int inner = c.has("mamba_d_ssm") ? c.integer("mamba_d_ssm", 1, kMaxWidth)
                                         : hidden * c.integer("mamba_expand", 1, 16, 2);
  o.heads = c.integer("mamba_n_heads", 1, 65536, 128);
  o.head_dim = c.is_string("mamba_d_head") && c.get<std::string>("mamba_d_head") == "auto"
                   ? inner / o.heads
                   : c.integer("mamba_d_head", 1, 65536, inner / o.heads);
  o.state = c.integer("mamba_d_state", 1, 4096, 256);
  o.groups = c.integer("mamba_n_groups", 1, 65536, 1);
  o.taps = c.integer("mamba_d_conv", 2, 16, 4);
  o.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  o.bias = bias_if(c.get("mamba_proj_bias", false));
  o.out_bias = bias_if(c.get("projectors_bias", false));
  o.conv_bias = bias_if(c.get("mamba_conv_bias", true));
  o.read_limits(c, "time_step_limit");
  o.in_scale = m.ssm_in;
  o.stream_scales = m.ssm;
  o.norm = c.get("mamba_rms_norm", false);
  o.norm_before_gate = o.norm && c.get("mamba_norm_before_gate", true);
  o.check(c, inner);
  return o;
}

/// h += ssm(norm(h)) + attention(norm(h)); h += ffn(norm(h))
struct Layer {
  RmsNorm norm, ffn_norm;
  Mamba2Mixer ssm;
  Attention attention;
  Linear gate_up, down;
  Activation activation;
  Multipliers m;

  array operator()(const array& h, Step& step) const {
    const auto times = [](const array& x, float by) { return by == 1.0f ? x : mx::multiply(x, array(by)); };
    const array x = norm(h);
    const array seen = attention(times(x, m.attention_in), step);
    const array mixed = mx::add(mx::add(h, times(ssm(x, step), m.ssm_out)), times(seen, m.attention_out));
    const array both = gate_up(ffn_norm(mixed));
    const int tokens = both.shape(0), width = both.shape(1) / 2;
    const array gate = times(mx::slice(both, {0, 0}, {tokens, width}), m.mlp_gate);
    const array up = mx::slice(both, {0, width}, {tokens, 2 * width});
    return mx::add(mixed, times(down(mx::multiply(kernels::activate(gate, activation), up)), m.mlp_down));
  }
};

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8});
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto conv = w.peek("model.layers.0.mamba.conv1d.weight");
  const auto m = multipliers(c, conv && conv->shape.size() == 3 && conv->shape[2] == 1 && conv->shape[1] > 1);
  const auto options = mamba(c, d.hidden, eps, m);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const Bias bias = bias_if(c.get("attention_bias", false)), mlp_bias = bias_if(c.get("mlp_bias", false));
  const AttentionOptions attention{.rope = Rope::from(c, d),
                                   .scale = m.key / std::sqrt(static_cast<float>(d.head_dim)),
                                   .qkv_bias = bias,
                                   .out_bias = bias};

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden, m.embedding));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers)) {
    const Weights ffn = layer / "feed_forward";
    model.add(Layer{.norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                    .ffn_norm = layer.rms_norm("pre_ff_layernorm", d.hidden, eps),
                    .ssm = Mamba2Mixer(layer / "mamba", options),
                    .attention = Attention(layer / "self_attn", d, attention),
                    .gate_up = ffn.fused({"gate_proj", "up_proj"}, {width, width}, d.hidden, mlp_bias),
                    .down = ffn.linear("down_proj", d.hidden, width, mlp_bias),
                    .activation = options.activation,
                    .m = m});
  }
  model.finish(w.rms_norm("model.final_layernorm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  model.logit_scale(m.head);
  return model;
}

}  // namespace

Arch arch_falcon_h1() {
  return {
      .model_types = {"falcon_h1"},
      .gguf = {"falcon-h1"},
      .reference = "transformers FalconH1ForCausalLM",
      .build = build,
      .tiny = R"({"model_type": "falcon_h1", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": true,
              "mlp_bias": true, "projectors_bias": true, "mamba_proj_bias": true, "mamba_conv_bias": true,
              "mamba_d_ssm": 192, "mamba_n_heads": 6, "mamba_d_head": 32, "mamba_n_groups": 3, "mamba_d_state": 12,
              "mamba_d_conv": 4, "mamba_rms_norm": true, "mamba_norm_before_gate": false,
              "time_step_limit": [0.05, 1.5], "embedding_multiplier": 1.5, "lm_head_multiplier": 0.7,
              "key_multiplier": 0.6, "attention_in_multiplier": 0.8, "attention_out_multiplier": 1.2,
              "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.75, "ssm_multipliers": [0.9, 1.1, 0.8, 1.2, 0.7],
              "mlp_multipliers": [0.9, 1.3], "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
