// Youtu-LLM: latent attention and a dense MLP. Reference: transformers YoutuForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = mla_dims(c);
  const int width = c.integer("intermediate_size", 1, kMaxWidth);
  const auto activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  const auto mla = MlaOptions::from(c, d);

  return pre_norm_decoder(
      c, w, d, epsilon(c, "rms_norm_eps", 1e-6f),
      {.mixer = [&](int, const Weights& layer) { return Mla(layer / "self_attn", mla); },
       .ffn = [&](int,
                  const Weights& layer) { return GatedMlp(layer / "mlp", d.hidden, width, activation); }},
      true);
}

std::vector<Rule> rules(const Config& c, const Source&) {
  const auto mla = MlaOptions::from(c, mla_dims(c));
  return heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
}

}  // namespace

Arch arch_youtu_llm() {
  return {
      .model_types = {"youtu_llm", "youtu"},
      .gguf = {"deepseek2"},
      .reference = "transformers YoutuForCausalLM",
      .build = build,
      .weights = rules,
      .tiny = R"({"model_type": "youtu_llm", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 2, "num_attention_heads": 6, "q_lora_rank": 64, "kv_lora_rank": 64,
              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
