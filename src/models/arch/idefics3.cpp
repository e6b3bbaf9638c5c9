// Idefics 3 and SmolVLM: the text side, under names of its own. Reference: transformers
// Idefics3ForConditionalGeneration, SmolVLMForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_idefics3() {
  Arch arch = text_side({.model_types = {"idefics3", "smolvlm"},
                         .reference = "transformers Idefics3ForConditionalGeneration",
                         .tiny = R"({"model_type": "idefics3", "text_config": {"model_type": "llama",
              "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}})"},
                        "llama");
  const WeightRules text = arch.weights;
  arch.weights = [text](const Config& c, const Source& source) {
    return std::vector<Rule>{rename("model.text_model.*", "model.*")} + text(c, source);
  };
  return arch;
}

}  // namespace mlxcel
