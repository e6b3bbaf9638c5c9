// PaddleOCR-VL: the text side, Ernie 4.5's sizes under Llama's graph. Reference: transformers
// PaddleOCRVLForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

Arch arch_paddleocr_vl() {
  Arch arch =
      preceded(text_side({.model_types = {"paddleocr_vl"},
                          .gguf = {"paddleocr"},
                          .reference = "transformers PaddleOCRVLForConditionalGeneration",
                          .tiny = R"({"model_type": "paddleocr_vl", "use_bias": false, "vocab_size": 256,
              "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
              "rope_scaling": {"type": "mrope"}, "tie_word_embeddings": false})"},
                         "llama"),
               {drop("mlp_AR.*"), drop("model.projector.*")});
  arch.build = Builder([own = arch.build](const Config& config, const Weights& weights) {
    if (text_config(config).get("use_bias", false))
      fail(ErrorKind::unsupported, "{}: use_bias is not supported for paddleocr_vl", config.where());
    return own(config, weights);
  });
  return arch;
}

}  // namespace mlxcel
