#include <algorithm>
#include <iterator>
#include <string_view>

#include "models/arch.h"

namespace mlxcel {

namespace {

/// Every model_type that the product knows of: a name that is not here is unknown, one that is
/// here without an architecture file is known but not supported yet.
constexpr std::string_view kKnownTypes[] = {
    "bonsai",
    "bunny-llama",
    "canary",
    "chatterbox",
    "cohere_compass",
    "colqwen2",
    "csm",
    "dia",
    "ernie4_5_moe_vl",
    "falcon_ocr",
    "falcon_perception",
    "florence2",
    "flux2",
    "got",
    "granite_speech",
    "higgs_audio",
    "hrm_text",
    "ideogram4",
    "indextts",
    "jina_vlm",
    "jvlm",
    "kitten_tts",
    "kokoro",
    "llama_nemotron_vl",
    "llava_bunny",
    "llmjpvl",
    "locateanything",
    "mage_flow",
    "mage_vl",
    "minimax_h3",
    "molmo_point",
    "moondream",
    "moondream1",
    "moondream2",
    "moondream3",
    "moonshine",
    "multi_modality",
    "nemotron_asr",
    "nemotron_h_nano_omni",
    "nemotron_labs_diffusion",
    "nemotron_parse",
    "nemotron_voicechat",
    "nemotronh_nano_omni_reasoning_v3",
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
    "unlimited-ocr",
    "unlimited_ocr",
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

}  // namespace mlxcel
