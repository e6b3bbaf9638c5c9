// Qwen3-VL with experts: its text side, which is Qwen3 MoE where no image stands in the prompt. Published
// experts are [in, out] and hold gate and up in one. Reference: transformers
// Qwen3VLMoeForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// The text family's rules, then experts [experts, in, out] turned where the shape says so.
std::vector<Rule> fused_experts(const Config& whole, const Source& source, std::vector<Rule> rules) {
  const int hidden = text_config(whole).integer("hidden_size", 1, kMaxWidth);
  for (const auto& name : source.names()) {
    if (!name.ends_with(".experts.gate_up_proj")) continue;
    const Shape shape = source.find(name).value().shape;
    if (shape.size() == 3 && shape[1] == hidden && shape[2] != hidden)
      for (const char* turned : {"*.experts.gate_up_proj", "*.experts.down_proj"})
        rules.push_back(transpose(turned));
    break;
  }
  rules.push_back(split_axis(-2, "*.mlp.experts.gate_up_proj",
                             {"*.mlp.switch_mlp.gate_proj.weight", "*.mlp.switch_mlp.up_proj.weight"}));
  rules.push_back(rename("*.mlp.experts.down_proj", "*.mlp.switch_mlp.down_proj.weight"));
  return rules;
}

}  // namespace

Arch arch_qwen3_vl_moe() {
  Arch arch = text_side({.model_types = {"qwen3_vl_moe"},
                         .gguf = {"qwen3vlmoe"},
                         .reference = "transformers Qwen3VLMoeForConditionalGeneration",
                         .tiny = R"({"model_type": "qwen3_vl_moe", "tie_word_embeddings": false,
              "text_config": {"model_type": "qwen3_vl_moe_text", "vocab_size": 256,
              "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": true, "num_experts": 6,
              "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": true,
              "decoder_sparse_step": 1, "mlp_only_layers": [1]}})"},
                        "qwen3_moe");
  arch.weights = [own = arch.weights](const Config& config, const Source& source) {
    return fused_experts(config, source, own(config, source));
  };
  return arch;
}

}  // namespace mlxcel
