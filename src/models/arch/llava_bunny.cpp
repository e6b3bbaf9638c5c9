// Bunny and nanoLLaVA: the text side of Llama or Qwen 2, whose config stands beside the tower's. Reference:
// transformers LlamaForCausalLM, Qwen2ForCausalLM.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// The name says it ("bunny-llama", "llava-qwen2"); converted files name their text's own.
std::string family(const Config& c) {
  const auto own = c.get<std::string>("model_type"),
             text = text_config(c).get<std::string>("model_type", own);
  const std::string& name = own == "llava_bunny" && text != own ? text : own;
  if (name.ends_with("llama")) return "llama";
  if (name.ends_with("qwen2")) return "qwen2";
  fail(ErrorKind::unsupported, "{}: {} with text of model_type {}: expected llama or qwen2", c.where(), own,
       text);
}

}  // namespace

Arch arch_llava_bunny() {
  return preceded(text_side({.model_types = {"llava_bunny", "bunny-llama", "llava-qwen2"},
                             .reference = "transformers LlamaForCausalLM, Qwen2ForCausalLM",
                             .tiny = R"({"model_type": "bunny-llama", "vocab_size": 256, "hidden_size": 192,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "tie_word_embeddings": false})"},
                            family),
                  {rename("language_model.model.lm_head.*", "lm_head.*")});
}

}  // namespace mlxcel
