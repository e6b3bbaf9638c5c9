// InternVL: the text side of Qwen 2, Qwen 3, InternLM or Llama, as its publisher and as transformers saves
// it. Reference: transformers InternVLForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_internvl() {
  Arch arch = text_side({.model_types = {"internvl", "internvl_chat"},
                         .reference = "transformers InternVLForConditionalGeneration",
                         .tiny = R"({"model_type": "internvl", "text_config": {"model_type": "qwen2",
              "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "use_sliding_window": false, "tie_word_embeddings": false}})"},
                        "qwen2");
  return preceded(std::move(arch), {drop("mlp1.*")});
}

}  // namespace mlxcel
