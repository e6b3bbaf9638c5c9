// Idefics 2, 3 and SmolVLM: the text side, under names of its own. Reference: transformers
// Idefics3ForConditionalGeneration, SmolVLMForConditionalGeneration, Idefics2ForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_idefics3() {
  return preceded(text_side({.model_types = {"idefics3", "smolvlm", "idefics2"},
                             .reference = "transformers Idefics3ForConditionalGeneration",
                             .tiny = R"({"model_type": "idefics3", "text_config": {"model_type": "llama",
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}})"},
                            "llama"),
                  {rename("model.text_model.*", "model.*"), drop("model.perceiver_resampler.*")});
}

}  // namespace mlxcel
