// Hunyuan-Large: layers in pairs that share the projections of keys and values. Reference: mlx-lm hunyuan,
// and for the weights of experts, which it does not divide by their sum, the publisher's modeling_hunyuan.
#include "models/hunyuan.h"
#include "models/kit.h"

namespace mlxcel {

namespace {

Decoder build(const Config& c, const Weights& w) { return hunyuan_decoder(c, w, true); }

/// Fused q, k and v lie kv head by kv head.
std::vector<Rule> weights(const Config& c, const Source&) {
  const auto d = Dims::from(c);
  const int kv = d.kv_heads * d.head_dim;
  return std::vector<Rule>{
             split("*.self_attn.qkv_proj.weight",
                   {"*.self_attn.q_proj.weight", "*.self_attn.k_proj.weight", "*.self_attn.v_proj.weight"},
                   {d.heads * d.head_dim, kv, kv}, d.kv_heads)} +
         hunyuan_rules();
}

}  // namespace

Arch arch_hunyuan() {
  return {.model_types = {"hunyuan"},
          .reference = "mlx-lm hunyuan, its experts' weights from the publisher's modeling_hunyuan",
          .build = build,
          .weights = weights,
          .tiny = R"({"model_type": "hunyuan", "vocab_size": 256, "hidden_size": 192, "intermediate_size": 64,
              "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 100.0,
              "rope_scaling": {"type": "dynamic", "alpha": 20.0}, "attention_bias": false,
              "use_cla": true, "cla_share_factor": 2, "use_qk_norm": true, "use_mixed_mlp_moe": true,
              "num_experts": 6, "moe_topk": 2, "num_shared_expert": 1, "tie_word_embeddings": true})"};
}

}  // namespace mlxcel
