// Unlimited OCR: the text side, DeepSeek-V2's experts under attention that keeps the whole prompt in sight
// and of its own writing a window. Reference: transformers UnlimitedOcrForConditionalGeneration.
#include <memory>

#include "models/deepseek_v2.h"
#include "models/kit.h"
#include "nn/placed_attention.h"
#include "state/pattern.h"

namespace mlxcel {

namespace {

/// Published files name the window beside the text's own keys.
Config text_of(const Config& whole) {
  for (const char* key : {"text_config", "language_config"}) {
    const Config text = whole.child(key, {"tie_word_embeddings", "sliding_window", "sliding_window_size"});
    if (!text.empty()) return text;
  }
  return whole;
}

Decoder build(const Config& whole, const Weights& w) {
  const Config c = text_of(whole);
  const auto d = Dims::from(c);
  if (c.get("use_mla", false))
    fail(ErrorKind::unsupported, "{}: use_mla true: no published Unlimited OCR has it", c.where());
  listed_kinds(c, "layer_types", d.layers, {"reference_sliding_attention"});  // the only kind there is here
  const char* key = c.has("sliding_window_size") ? "sliding_window_size" : "sliding_window";
  const int window = c.integer(key, 1, kMaxPositions, 128);
  const auto rope = Rope::from(c, d);
  const auto moe = deepseek_v2_experts(c);
  const auto choice = std::make_shared<PlaceChoice>(
      PlaceChoice{.choose = [window](const Step& step) { return prompt_and_window(step, window); }});
  // What is remembered behind the prompt depends on where that ends.
  w.layout().add_length_limit(1, /*grows=*/true);
  if (rope.limit() > 0)
    fail(ErrorKind::unsupported, "{}: a rotation that depends on length beside this attention", c.where());
  if (whole.has("vision_config"))
    w.warn("the text side alone is served: the vision tower is left out, images are refused");
  return pre_norm_decoder(c, w, d, epsilon(c, "rms_norm_eps", 1e-6f),
                          {.mixer =
                               [&](int i, const Weights& layer) {
                                 return PlacedAttention(layer / "self_attn", d,
                                                        {.rope = rope, .choice = choice, .chooses = i == 0});
                               },
                           .ffn =
                               [&](int i, const Weights& layer) {
                                 return sparse_or_dense(layer / "mlp", c, d.hidden, moe,
                                                        is_sparse(c, i, d.layers, 1));
                               }});
}

}  // namespace

Arch arch_unlimited_ocr() {
  const std::vector<Rule> towers = {
      drop("*sam_model.*"),    drop("*vision_model.*"), drop("*vision_tower.*"),  drop("*projector.*"),
      drop("*view_sep*rator"), drop("*image_newline"),  rename("language.*", "*")};
  return {.model_types = {"unlimited_ocr", "unlimited-ocr"},
          .reference = "transformers UnlimitedOcrForConditionalGeneration",
          .build = build,
          .weights = towers + text_side_rules() + stack_experts(),
          .tiny = R"({"model_type": "unlimited_ocr", "language_config": {
              "sliding_window": 5, "vocab_size": 256, "hidden_size": 128, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "use_mla": false,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
              "moe_intermediate_size": 64, "topk_method": "greedy", "norm_topk_prob": false,
              "routed_scaling_factor": 2.0, "tie_word_embeddings": false}})"};
}

}  // namespace mlxcel
