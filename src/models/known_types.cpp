#include <algorithm>
#include <iterator>
#include <string_view>

#include "models/arch.h"
#include "models/known_types.h"

namespace mlxcel {

namespace {

/// Every model_type that the product knows of: a name that is not here is unknown, one that is
/// here without an architecture file is known but not supported yet.
constexpr std::string_view kKnownTypes[] = {
    "bonsai",
    "canary",
    "chatterbox",
    "cohere_compass",
    "colqwen2",
    "csm",
    "dia",
    "falcon_perception",
    "florence2",
    "flux2",
    "got",
    "granite_speech",
    "higgs_audio",
    "hrm_text",
    "ideogram4",
    "indextts",
    "kitten_tts",
    "kokoro",
    "llama_nemotron_vl",
    "llmjpvl",
    "mage_flow",
    "minimax_h3",
    "moonshine",
    "multi_modality",
    "nemotron_asr",
    "nemotron_labs_diffusion",
    "nemotron_parse",
    "nemotron_voicechat",
    "openai_privacy_filter",
    "outetts",
    "paligemma",
    "parakeet",
    "plamo2vl",
    "qwen3_asr",
    "qwen3_tts",
    "rfdetr",
    "rt_detr_v2",
    "sam3",
    "sam3_1",
    "sam3d_body",
    "sensevoice",
    "siglip",
    "spark",
    "vibevoice",
    "voxcpm",
    "voxtral",
    "whisper",
    "z_image",
    "zaya1_vl",
};

}  // namespace

bool is_known_model_type(std::string_view model_type) {
  return std::find(std::begin(kKnownTypes), std::end(kKnownTypes), model_type) != std::end(kKnownTypes);
}

std::string_view missing_part(std::string_view model_type) {
  if (model_type == "paligemma")
    return "all tokens of its prompt see each other, and prompts are read here in pieces that are shared";
  for (const std::string_view pair : {"florence2", "nemotron_parse"})
    if (model_type == pair)
      return "it reads an image with an encoder, and text alone gives it nothing to read";
  for (const std::string_view tower : {"siglip", "colqwen2", "llama_nemotron_vl"})
    if (model_type == tower) return "its tower for images, or for texts beside images, is still to come";
  for (const std::string_view speech : {"whisper", "kokoro", "nemotron_voicechat"})
    if (model_type == speech) return "speech is still to come";
  return {};
}

}  // namespace mlxcel
