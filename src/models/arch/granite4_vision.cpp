// Granite 4 Vision: the text side, which is Granite. Reference: transformers
// Granite4VisionForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_granite4_vision() {
  return preceded(text_side({.model_types = {"granite4_vision"},
                             .reference = "transformers Granite4VisionForConditionalGeneration",
                             .tiny = R"({"model_type": "granite4_vision", "text_config": {
              "model_type": "granite4_vision_text", "vocab_size": 256, "hidden_size": 192,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "embedding_multiplier": 3.0,
              "attention_multiplier": 0.25, "residual_multiplier": 0.5, "logits_scaling": 2.0,
              "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": false}})"},
                            "granite"),
                  {drop("model.layerwise_projectors.*"), drop("model.spatial_projectors.*"),
                   drop("layerwise_projectors.*"), drop("spatial_projectors.*")});
}

}  // namespace mlxcel
