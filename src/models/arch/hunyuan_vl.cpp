// HunyuanOCR: the text side, which is Hunyuan dense; its positions on several axes are one where there is
// text only. Reference: transformers HunYuanVLForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_hunyuan_vl() {
  return preceded(text_side({.model_types = {"hunyuan_vl"},
                             .gguf = {"hunyuan_vl"},
                             .reference = "transformers HunYuanVLForConditionalGeneration",
                             .tiny = R"({"model_type": "hunyuan_vl", "vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-5, "rope_theta": 100.0, "rope_scaling": {"type": "xdrope", "alpha": 20.0},
              "attention_bias": true, "tie_word_embeddings": true})"},
                            "hunyuan_v1_dense"),
                  {drop("vit.*"), drop("model.vit.*")});
}

}  // namespace mlxcel
