#include <algorithm>
#include <iterator>
#include <string_view>

#include "models/arch.h"

namespace mlxcel {

namespace {

/// Every model_type that the product knows of: a name that is not here is unknown, one that is
/// here without an architecture file is known but not supported yet.
constexpr std::string_view kKnownTypes[] = {
    "Klear", "afm7", "afmoe", "apertus", "aya_vision", "baichuan_m1", "bailing_moe", "bailing_moe_linear",
    "bert", "bitnet", "bonsai", "bunny-llama", "canary", "chatterbox", "cohere", "cohere2", "cohere2_moe",
    "cohere_compass", "colqwen2", "csm", "dbrx", "deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v3.2",
    "deepseek_v32", "deepseek_v4", "deepseek_vl_v2", "deepseekocr", "deepseekocr_2", "dia",
    "diffusion_gemma", "diffusion_gemma_text", "dots1", "dots_ocr", "ernie4.5", "ernie4.5_moe", "ernie4_5",
    "ernie4_5_moe", "ernie4_5_moe_vl", "exaone", "exaone4", "exaone_moe", "falcon_h1", "falcon_mamba",
    "falcon_ocr", "falcon_perception", "fastvlm", "florence2", "flux2", "gemma", "gemma2", "gemma3",
    "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified", "glm", "glm4",
    "glm4_moe", "glm4_moe_lite", "glm4v", "glm4v_moe", "glm_moe_dsa", "glm_ocr", "got", "gpt2",
    "gpt_bigcode", "gpt_neox", "gpt_oss", "granite", "granite4_vision", "granite_speech", "granite_vision",
    "granitemoe", "granitemoehybrid", "griffin", "helium", "higgs_audio", "hrm_text", "hunyuan",
    "hunyuan_dense", "hunyuan_v1_dense", "hunyuan_vl", "idefics2", "idefics3", "ideogram4", "indextts",
    "inkling", "inkling_mm_model", "internlm2", "internlm3", "internvl_chat", "iquestcoder",
    "iquestloopcoder", "jamba", "jina_vlm", "joyai_llm_flash", "jvlm", "kimi_k2", "kimi_k25", "kimi_k3",
    "kimi_linear", "kimi_vl", "kitten_tts", "kokoro", "laguna", "lfm2", "lfm2-vl", "lfm2_moe", "lfm2_vl",
    "lille-130m", "llada2_moe", "llama", "llama4", "llama4_text", "llama_bidirec", "llama_nemotron_vl",
    "llava", "llava_bunny", "llava_next", "llava_qwen2", "llmjpvl", "locateanything", "longcat_flash",
    "longcat_flash_ngram", "mage_flow", "mage_vl", "mamba", "mamba2", "mellum", "mimo", "mimo_v2_flash",
    "minicpm", "minicpm3", "minicpmo", "minicpmv4_6", "minimax", "minimax_h3", "minimax_m2", "minimax_m3",
    "minimax_m3_vl", "ministral3", "mistral", "mistral3", "mistral4", "mixtral", "mllama", "modernbert",
    "molmo", "molmo2", "molmo_point", "moondream", "moondream1", "moondream2", "moondream3", "moonshine",
    "multi_modality", "muse_glimmer", "nanochat", "nemotron", "nemotron-nas", "nemotron_asr", "nemotron_h",
    "nemotron_h_nano_omni", "nemotron_labs_diffusion", "nemotron_parse", "nemotron_voicechat",
    "nemotronh_nano_omni_reasoning_v3", "olmo", "olmo2", "olmo3", "olmoe", "openai_privacy_filter",
    "openelm", "outetts", "paddleocr_vl", "paligemma", "parakeet", "phi", "phi-msft", "phi3", "phi3_v",
    "phi3small", "phi4-siglip", "phi4mm", "phimoe", "phixtral", "pixtral", "plamo", "plamo2", "plamo2vl",
    "qwen", "qwen2", "qwen2_5_vl", "qwen2_moe", "qwen2_vl", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_asr",
    "qwen3_moe", "qwen3_next", "qwen3_omni_moe", "qwen3_tts", "qwen3_vl", "qwen3_vl_moe", "qwen3next",
    "recurrent_gemma", "rfdetr", "rt_detr_v2", "rwkv7", "sam3", "sam3_1", "sam3d_body", "seed_oss",
    "sensevoice", "siglip", "smollm3", "smolvlm", "solar_open", "spark", "stablelm", "starcoder2",
    "step3p5", "step3p7", "telechat3", "unlimited-ocr", "unlimited_ocr", "vibevoice", "voxcpm", "voxtral",
    "whisper", "xlm-roberta", "youtu", "youtu_llm", "youtu_vl", "z_image", "zaya1_vl",
};

}  // namespace

bool is_known_model_type(std::string_view model_type) {
  return std::find(std::begin(kKnownTypes), std::end(kKnownTypes), model_type) != std::end(kKnownTypes);
}

}  // namespace mlxcel
