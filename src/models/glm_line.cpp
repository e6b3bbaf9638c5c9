#include "models/glm_line.h"

#include "models/kit.h"

namespace mlxcel {

Decoder glm_decoder(const Config& c, const Weights& w, GlmNorms norms) {
  // The texts of GLM-4.1V and GLM-OCR divide their width where no head_dim is named.
  const auto type = c.get<std::string>("model_type", "");
  const bool ocr = type == "glm_ocr_text", divided = ocr || type == "glm4v_text";
  const auto d = Dims::from(c, {.kv_heads = 2, .head_dim = divided ? 0 : 128});
  const auto norm = rms_norms(d.hidden, epsilon(c, "rms_norm_eps", 1.5625e-7f));
  const auto rope = Rope::from(c, d, {.part = ocr ? 1.0f : 0.5f, .interleaved = true});
  const Bias bias = c.get("attention_bias", !ocr) ? Bias::required : Bias::none;
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int, const Weights& layer) -> Block {
    Attention mixer(layer / "self_attn", d, {.rope = rope, .qkv_bias = bias, .out_bias = Bias::none});
    auto ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none);
    auto mixer_norm = norm(layer, "input_layernorm"), ffn_norm = norm(layer, "post_attention_layernorm");
    if (norms == GlmNorms::before)
      return PreNorm{.mixer_norm = mixer_norm, .mixer = mixer, .ffn_norm = ffn_norm, .ffn = ffn};
    return Sandwich{.mixer_norm = mixer_norm,
                    .mixer = mixer,
                    .after_mixer = norm(layer, "post_self_attn_layernorm"),
                    .ffn_norm = ffn_norm,
                    .ffn = ffn,
                    .after_ffn = norm(layer, "post_mlp_layernorm")};
  });
}

std::vector<Rule> glm_rules() {
  return {split("*.gate_up_proj.weight", {"*.gate_proj.weight", "*.up_proj.weight"})};
}

}  // namespace mlxcel
