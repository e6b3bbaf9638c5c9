// DeepSeek-VL2 and DeepSeek-OCR: the text side, which is DeepSeek-V2, with latent attention or (the small
// ones) without. Reference: transformers DeepseekV2ForCausalLM, DeepseekOcr2ForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_deepseek_vl_v2() {
  const std::vector<Rule> names = {
      drop("vision.*"),          drop("projector.*"),         drop("model.projector.*"),
      drop("model.sam_model.*"), drop("model.qwen2_model.*"), drop("*view_sep*rator"),
      drop("tile_indicators"),   rename("language.*", "*")};
  return preceded(
      text_side({.model_types = {"deepseek_vl_v2", "deepseekocr", "deepseekocr_2", "deepseek_ocr2"},
                 .gguf = {"deepseek2-ocr"},
                 .reference = "transformers DeepseekV2ForCausalLM, DeepseekOcr2ForConditionalGeneration",
                 .tiny = R"({"model_type": "deepseek_vl_v2", "language_config": {"model_type": "deepseek_v2",
              "vocab_size": 256, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 3,
              "num_attention_heads": 4, "num_key_value_heads": 4, "use_mla": false, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
              "moe_intermediate_size": 64, "topk_method": "greedy", "norm_topk_prob": false,
              "routed_scaling_factor": 2.0, "tie_word_embeddings": false}})"},
                "deepseek_v2"),
      names);
}

}  // namespace mlxcel
