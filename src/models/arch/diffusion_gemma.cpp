// DiffusionGemma: Gemma 4 with experts, which reads what is known token after token and fills in a draft
// behind it over several rounds. Reference: transformers DiffusionGemmaForBlockDiffusion.
#include "models/gemma4.h"
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  if (!c.get("tie_word_embeddings", true))
    fail(ErrorKind::unsupported,
         "{}: tie_word_embeddings false: weights of its own for what is known and for drafts", c.where());
  if (text_config(c).get("attention_bias", false))
    fail(ErrorKind::unsupported,
         "{}: attention_bias: what is known and drafts would have biases of their own", c.where());
  Decoder model = gemma4_decoder(c, w, {.drafts = true});
  const int canvas = c.integer("canvas_length", 1, 4096, 256);
  model.diffuses({.block = canvas,
                  .mask = -1,
                  .threshold = 0.9f,
                  .steps = 48,
                  .redraws = true,
                  .sampler = Diffusion::Sampler::entropy_bound});
  return model;
}

std::vector<Rule> weights() {
  return std::vector<Rule>{
             rename("model.decoder.layers.#.layer_scalar", "model.layers.#.draft_scalar"),
             rename("model.decoder.*", "model.*"),
             rename("model.encoder.language_model.layers.#.layer_scalar", "model.layers.#.layer_scalar"),
             drop("model.encoder.*")} +
         gemma4_rules();
}

}  // namespace

Arch arch_diffusion_gemma() {
  return {.model_types = {"diffusion_gemma", "diffusion_gemma_text"},
          .reference = "transformers DiffusionGemmaForBlockDiffusion",
          .build = build,
          .weights = weights(),
          .tiny = R"({"model_type": "diffusion_gemma", "canvas_length": 9, "tie_word_embeddings": true,
              "text_config": {"vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
              "head_dim": 32, "global_head_dim": 48, "num_global_key_value_heads": 1,
              "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
              "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 10000.0,
                                                     "partial_rotary_factor": 0.25},
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}},
              "layer_types": ["sliding_attention", "full_attention", "full_attention"], "sliding_window": 8,
              "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 64,
              "final_logit_softcapping": 5.0}})"};
}

}  // namespace mlxcel
