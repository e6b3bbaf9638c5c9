// Pythia and GPT-NeoX: q, k and v in one matrix head by head, a quarter of each head rotated, attention and
// MLP side by side through two norms (or in a row). Reference: transformers GPTNeoXForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const auto norm = layer_norms(d.hidden, epsilon(c, "layer_norm_eps", 1e-5f));
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c, "hidden_act", "gelu");
  const Bias bias = c.get("attention_bias", true) ? Bias::required : Bias::none;
  const auto rope =
      Rope::from(c, d, {.part = 0.25f, .theta_key = "rotary_emb_base", .part_key = "rotary_pct"});
  const bool parallel = c.get("use_parallel_residual", true);
  const StandardOptions options{.tie = tied(c, false), .head = "embed_out"};
  return standard_decoder(w, d, norm, options, [&](int, const Weights& layer) -> Block {
    const auto before = norm(layer, "input_layernorm"), second = norm(layer, "post_attention_layernorm");
    const auto mixer =
        Attention(layer / "attention", d, {.rope = rope, .qkv_bias = bias, .out_bias = bias, .out = "dense"});
    const auto ffn =
        Mlp(layer / "mlp", "dense_h_to_4h", "dense_4h_to_h", d.hidden, width, activation, Bias::required);
    if (parallel) return Parallel{.norm = before, .mixer = mixer, .ffn = ffn, .ffn_norm = second};
    return PreNorm{.mixer_norm = before, .mixer = mixer, .ffn_norm = second, .ffn = ffn};
  });
}

std::vector<Rule> rules(const Config& c, const Source&) {
  const auto d = Dims::from(c);
  return {drop("*.attention.bias"),
          drop("*.attention.masked_bias"),
          rename("gpt_neox.embed_in.*", "model.embed_tokens.*"),
          rename("gpt_neox.final_layer_norm.*", "model.norm.*"),
          rename("gpt_neox.*", "model.*"),
          split("*.query_key_value.*", {"*.q_proj.*", "*.k_proj.*", "*.v_proj.*"},
                {d.hidden, d.hidden, d.hidden}, d.heads),
          split("*.whole_query_key_value.*", {"*.q_proj.*", "*.k_proj.*", "*.v_proj.*"})};
}

}  // namespace

Arch arch_gpt_neox() {
  return {
      .model_types = {"gpt_neox"},
      .gguf = {"gptneox"},
      .reference = "transformers GPTNeoXForCausalLM",
      .build = build,
      .weights = rules,
      .tiny = R"({"model_type": "gpt_neox", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "hidden_act": "gelu_new",
              "max_position_embeddings": 512, "layer_norm_eps": 1e-5, "rotary_emb_base": 10000,
              "rotary_pct": 0.25, "use_parallel_residual": true, "attention_bias": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
