// Phi-3-Vision and Phi-4-multimodal: the text side without the adapters that images and sound switch on.
// Reference: the publisher's modeling_phi3_v and modeling_phi4mm, whose text is transformers Phi3ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

Arch arch_phi3_v() {
  Arch arch = text_side({.model_types = {"phi3_v", "phi4mm", "phi4-siglip"},
                         .reference = "transformers Phi3ForCausalLM",
                         .tiny = R"({"model_type": "phi3_v", "vocab_size": 256, "hidden_size": 192,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
              "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 8, "tie_word_embeddings": false})"},
                        "phi3");
  return preceded(std::move(arch), {drop("model.vision_embed_tokens.*"), drop("model.embed_tokens_extend.*"),
                                    drop("*.lora_A.*"), drop("*.lora_B.*"), rename("*.base_layer.*", "*.*")});
}

}  // namespace mlxcel
