// MiniCPM3: latent attention turned half against half, MiniCPM's scaled embeddings, branches and logits.
// Reference: transformers MiniCPM3ForCausalLM.
#include <cmath>

#include "models/kit.h"

namespace mlxcel {

namespace {

/// Without v_head_dim a head's values are as wide as the model shared out over the heads.
MlaOptions attention(const Config& c, const Dims& d) {
  return MlaOptions::from(c, d, {.interleaved = false, .value_dim = d.hidden / d.heads});
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = mla_dims(c);
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1e-5f));
  const auto mla = attention(c, d);
  const float branches = c.is_null("scale_depth")
                             ? 1.0f
                             : factor(c, "scale_depth", 1.4f) / std::sqrt(static_cast<float>(d.layers));
  const int base = c.is_null("dim_model_base") ? d.hidden : c.integer("dim_model_base", 1, kMaxWidth, 256);
  auto model =
      standard_decoder(w, d, norm, {.tie = tied(c, true), .embedding_scale = factor(c, "scale_emb", 12.0f)},
                       [&](int, const Weights& layer) {
                         return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                                        .mixer = Mla(layer / "self_attn", mla),
                                        .ffn_norm = norm(layer, "post_attention_layernorm"),
                                        .ffn = GatedMlp::from(c, layer / "mlp", d.hidden),
                                        .scale = branches};
                       });
  model.logit_scale(static_cast<float>(base) / static_cast<float>(d.hidden));
  return model;
}

std::vector<Rule> rules(const Config& c, const Source&) {
  const auto mla = attention(c, mla_dims(c));
  return heads_of_kv_b(mla.heads, mla.plain_dim, mla.value_dim);
}

}  // namespace

Arch arch_minicpm3() {
  return {
      .model_types = {"minicpm3"},
      .gguf = {"minicpm3"},
      .reference = "transformers MiniCPM3ForCausalLM",
      .build = build,
      .weights = rules,
      .tiny = R"({"model_type": "minicpm3", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 192,
              "num_hidden_layers": 2, "num_attention_heads": 4, "q_lora_rank": 64, "kv_lora_rank": 64,
              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "scale_emb": 4,
              "scale_depth": 0.9, "dim_model_base": 48, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
