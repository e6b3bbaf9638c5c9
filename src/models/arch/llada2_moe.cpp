// LLaDA-2: Ling's graph whose blocks of tokens see each other; masked tokens are filled in together.
// Reference: the publisher's modeling_llada2_moe.
#include "models/bailing.h"
#include "models/kit.h"

namespace mlxcel {

namespace {

constexpr int kPublishedMask = 156895;

Decoder build(const Config& c, const Weights& w) {
  const int block = c.integer("block_length", 1, 4096, 32);
  auto model = bailing_decoder(
      c, w,
      {.scores = "sigmoid", .corrected = true, .groups = 8, .kept_groups = 4, .part = 0.5f, .block = block});
  const int vocab = model.facts().vocab;
  const int mask = c.has("mask_token_id") || vocab > kPublishedMask
                       ? c.integer("mask_token_id", 0, vocab - 1, kPublishedMask)
                       : c.integer("mask_token_id", 0, vocab - 1);
  // The published generate() takes these two as arguments.
  model.diffuses({.block = block, .mask = mask, .threshold = 0.95f, .steps = 0});
  return model;
}

}  // namespace

Arch arch_llada2_moe() {
  return {
      .model_types = {"llada2_moe"},
      .reference = "modeling_llada2_moe LLaDA2MoeModelLM",
      .build = build,
      .weights = [](const Config& c, const Source&) { return bailing_rules(c); },
      .tiny = R"({"model_type": "llada2_moe", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "partial_rotary_factor": 0.5, "use_bias": false, "use_qkv_bias": true, "use_qk_norm": true,
              "first_k_dense_replace": 1, "num_experts": 8, "num_shared_experts": 1, "num_experts_per_tok": 3,
              "moe_intermediate_size": 64, "n_group": 4, "topk_group": 2, "norm_topk_prob": true,
              "routed_scaling_factor": 2.5, "block_length": 5, "mask_token_id": 255,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
