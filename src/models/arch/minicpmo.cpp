// MiniCPM-V and MiniCPM-o: the text side under "llm.", of a family that changed with every version.
// Reference: the publisher's modeling_minicpmv and modeling_minicpmo, whose text is transformers' own.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// As the publisher's config says it; the oldest have no version.
std::string family(const Config& c) {
  std::string version;
  if (c.has("version"))
    version = c.is_string("version") ? c.get<std::string>("version")
                                     : fmt::format("{:.1f}", c.get<float>("version"));
  if (version.empty()) version = c.integer("hidden_size", 1, kMaxWidth) == 2304 ? "2.0" : "2.5";
  const bool omni = c.get<std::string>("model_type") == "minicpmo";
  if (version == "2.6") return "qwen2";
  if (version == "4.5") return "qwen3";
  if (!omni && version == "2.0") return "minicpm";
  if (!omni && (version == "2.5" || version == "4.0")) return "llama";
  fail(ErrorKind::unsupported, "{}: version {}: expected {}", c.where(), version,
       omni ? "2.6 or 4.5" : "2.0, 2.5, 2.6, 4.0 or 4.5");
}

}  // namespace

Arch arch_minicpmo() {
  return preceded(
      text_side({.model_types = {"minicpmo", "minicpmv"},
                 .reference = "transformers Qwen3ForCausalLM, Qwen2ForCausalLM, LlamaForCausalLM",
                 .tiny = R"({"model_type": "minicpmo", "version": "4.5", "vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": true,
              "tie_word_embeddings": false})"},
                family),
      {drop("vpm.*"), drop("apm.*"), drop("tts.*"), drop("resampler.*"), drop("audio_projection_layer.*"),
       drop("audio_avg_pooler.*"), rename("llm.*", "*")});
}

}  // namespace mlxcel
