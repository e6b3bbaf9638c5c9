// StarCoder 1 and SantaCoder: GPT-2 with one key and value head for all queries. Reference: transformers
// GPTBigCodeForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Dims dims(const Config& c) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("n_embd", 1, kMaxWidth);
  d.layers = c.integer("n_layer", 1, kMaxLayers);
  d.heads = c.integer("n_head", 1, kMaxHeads);
  d.kv_heads = c.get("multi_query", true) ? 1 : d.heads;
  d.max_positions = c.integer("n_positions", 1, kMaxPositions);
  if (d.hidden % d.heads != 0)
    fail(ErrorKind::bad_checkpoint, "{}: n_embd {}: expected a multiple of n_head {}", c.where(), d.hidden,
         d.heads);
  d.head_dim = d.hidden / d.heads;
  return d;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = dims(c);
  if (c.get("add_cross_attention", false))
    fail(ErrorKind::unsupported, "{}: add_cross_attention is not supported: this is a decoder alone",
         c.where());
  const auto norm = layer_norms(d.hidden, epsilon(c, "layer_norm_epsilon", 1e-5f));
  const int width = c.integer("n_inner", 1, kMaxWidth, 4 * d.hidden);
  const auto activation = activation_from(c, "activation_function", "gelu_pytorch_tanh");
  const float scale = c.get("scale_attn_weights", true) ? 0.0f : 1.0f;  // 0: by the width of a head
  auto model = standard_decoder(w, d, norm, {.tie = tied(c, true)}, [&](int, const Weights& layer) {
    return PreNorm{
        .mixer_norm = norm(layer, "ln_1"),
        .mixer = Attention(
            layer / "attn", d,
            {.scale = scale, .qkv_bias = Bias::required, .out_bias = Bias::required, .out = "c_proj"}),
        .ffn_norm = norm(layer, "ln_2"),
        .ffn = Mlp(layer / "mlp", "c_fc", "c_proj", d.hidden, width, activation, Bias::required)};
  });
  model.learned_positions(w.embedding("model.wpe", d.max_positions, d.hidden));
  return model;
}

/// One kv head: q, k and v in a row; else head by head.
std::vector<Rule> rules(const Config& c, const Source&) {
  const auto d = dims(c);
  const int kv = d.kv_heads * d.head_dim;
  return {drop("*.attn.bias"),
          drop("*.attn.masked_bias"),
          rename("transformer.wte.*", "model.embed_tokens.*"),
          rename("transformer.ln_f.*", "model.norm.*"),
          rename("transformer.wpe.*", "model.wpe.*"),
          rename("transformer.h.*", "model.layers.*"),
          split("*.c_attn.*", {"*.q_proj.*", "*.k_proj.*", "*.v_proj.*"}, {d.hidden, kv, kv}, d.kv_heads)};
}

}  // namespace

Arch arch_gpt_bigcode() {
  return {
      .model_types = {"gpt_bigcode"},
      .gguf = {"starcoder"},
      .reference = "transformers GPTBigCodeForCausalLM",
      .build = build,
      .weights = rules,
      .tiny = R"({"model_type": "gpt_bigcode", "vocab_size": 256, "n_embd": 192, "n_layer": 3, "n_head": 6,
              "n_inner": 128, "n_positions": 128, "multi_query": true, "layer_norm_epsilon": 1e-5,
              "activation_function": "gelu_pytorch_tanh", "scale_attn_weights": true,
              "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
