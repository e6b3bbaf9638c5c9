// LongCat-Flash with hashed runs of tokens averaged into the embedding. Reference: mlx-lm
// longcat_flash_ngram.
#include "models/kit.h"
#include "models/longcat.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) {
  const auto d = longcat_dims(c);
  const Weights scope = w / "model" / "ngram_embeddings";
  return longcat_decoder(c, w, "model.ngram_embeddings.word_embeddings",
                         NgramMix(scope, NgramOptions::from(c, d.vocab, d.hidden)));
}

}  // namespace

Arch arch_longcat_flash_ngram() {
  return {
      .model_types = {"longcat_flash_ngram"},
      .gguf = {},
      .reference = "mlx-lm longcat_flash_ngram",
      .build = build,
      .weights =
          [](const Config& c, const Source&) {
            return std::vector<Rule>{
                       rename("model.embed_tokens.*", "model.ngram_embeddings.word_embeddings.*")} +
                   longcat_rules(c);
          },
      .tiny =
          R"({"model_type": "longcat_flash_ngram", "vocab_size": 256, "hidden_size": 256, "ffn_hidden_size": 192,
              "num_layers": 1, "num_attention_heads": 6, "q_lora_rank": 64, "kv_lora_rank": 64,
              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "n_routed_experts": 6,
              "zero_expert_num": 2, "moe_topk": 3, "expert_ffn_hidden_size": 64, "routed_scaling_factor": 2.0,
              "norm_topk_prob": true, "router_bias": true, "zero_expert_type": "identity",
              "mla_scale_q_lora": true, "mla_scale_kv_lora": true, "attention_bias": true,
              "emb_neighbor_num": 3, "emb_split_num": 2, "ngram_vocab_size_ratio": 2,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
