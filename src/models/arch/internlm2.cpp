// InternLM 2: Llama's graph with q, k and v in one matrix, group by group, and names of its own. Reference:
// mlx-lm internlm2; rotation beyond the trained context as the publisher's dynamic NTK.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-6f));
  const auto rope = Rope::from(c, d);
  const Bias bias = bias_if(c.get("bias", true));
  const StandardOptions options{.tie = tied(c, false), .head = "output"};
  return standard_decoder(w, d, norm, options, [&](int, const Weights& layer) {
    return PreNorm{.mixer_norm = norm(layer, "attention_norm"),
                   .mixer = Attention(layer / "attention", d,
                                      {.rope = rope, .qkv_bias = bias, .out_bias = bias, .out = "wo"}),
                   .ffn_norm = norm(layer, "ffn_norm"),
                   .ffn = GatedMlp::from(c, layer / "feed_forward", d.hidden, Bias::none)};
  });
}

std::vector<Rule> rules(const Config& c, const Source&) {
  const auto d = Dims::from(c);
  const int kv = d.kv_heads * d.head_dim;
  return {drop("*.rope.inv_freq"),
          rename("model.tok_embeddings.*", "model.embed_tokens.*"),
          rename("*.feed_forward.w1.*", "*.feed_forward.gate_proj.*"),
          rename("*.feed_forward.w3.*", "*.feed_forward.up_proj.*"),
          rename("*.feed_forward.w2.*", "*.feed_forward.down_proj.*"),
          split("*.wqkv.*", {"*.q_proj.*", "*.k_proj.*", "*.v_proj.*"}, {d.heads * d.head_dim, kv, kv},
                d.kv_heads)};
}

}  // namespace

Arch arch_internlm2() {
  return {
      .model_types = {"internlm2"},
      .gguf = {"internlm2"},
      .reference = "mlx-lm internlm2",
      .build = build,
      .weights = rules,
      .tiny = R"({"model_type": "internlm2", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "rope_scaling": {"type": "linear", "factor": 2.0}, "bias": true, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
