// LocateAnything: the text side, which is Qwen 2.5 with a tied head; boxes are tokens of its vocabulary.
// Reference: transformers Qwen2ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

Arch arch_locateanything() {
  return preceded(
      text_side({.model_types = {"locateanything"},
                 .reference = "transformers Qwen2ForCausalLM",
                 .tiny = R"({"model_type": "locateanything", "text_config": {"model_type": "qwen2",
              "vocab_size": 256, "hidden_size": 192, "intermediate_size": 128, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "use_sliding_window": false, "tie_word_embeddings": true}})"},
                "qwen2"),
      {drop("mlp1.*")});
}

}  // namespace mlxcel
