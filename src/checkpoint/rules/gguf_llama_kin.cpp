// Families whose GGUF files look like Llama's: granite, smollm3, olmo, olmo2 (and olmo3), internlm2, minicpm,
// seed_oss, ernie4_5, paddleocr, hunyuan-dense, hunyuan_vl, exaone, exaone4, qwen2vl, qwen3vl.
#include <cmath>

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

std::span<const GgufName> llama_names() {
  static const auto names = gguf_llama_names({});
  return names;
}

std::span<const GgufName> permuted_names() {
  static const auto names = gguf_llama_names({}, true);
  return names;
}

std::span<const GgufName> norm_after_names() {
  static const auto names = gguf_llama_names(
      {{"blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight"},
       {"blk.#.post_ffw_norm.weight", "model.layers.#.post_feedforward_layernorm.weight"}});
  return names;
}

std::span<const GgufName> hunyuan_names() {
  static const auto names =
      gguf_llama_names({{"blk.#.attn_q_norm.weight", "model.layers.#.self_attn.query_layernorm.weight"},
                        {"blk.#.attn_k_norm.weight", "model.layers.#.self_attn.key_layernorm.weight"}});
  return names;
}

std::span<const GgufName> exaone_names() {
  static const auto names = gguf_llama_names({{"blk.#.attn_output.*", "model.layers.#.self_attn.out_proj.*"},
                                              {"blk.#.ffn_gate.*", "model.layers.#.mlp.c_fc_0.*"},
                                              {"blk.#.ffn_up.*", "model.layers.#.mlp.c_fc_1.*"},
                                              {"blk.#.ffn_down.*", "model.layers.#.mlp.c_proj.*"}});
  return names;
}

/// Its second norm is called as if it stood behind the attention.
std::span<const GgufName> seed_oss_names() {
  static const auto names = gguf_llama_names(
      {{"blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight"}});
  return names;
}

constexpr GgufName kInternlm2Names[] = {
    {"token_embd.weight", "model.tok_embeddings.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "output.weight"},
    {"blk.#.attn_norm.weight", "model.layers.#.attention_norm.weight"},
    {"blk.#.attn_q.*", "model.layers.#.attention.q_proj.*", GgufChange::unpermute_q},
    {"blk.#.attn_k.*", "model.layers.#.attention.k_proj.*", GgufChange::unpermute_k},
    {"blk.#.attn_v.*", "model.layers.#.attention.v_proj.*"},
    {"blk.#.attn_output.*", "model.layers.#.attention.wo.*"},
    {"blk.#.ffn_norm.weight", "model.layers.#.ffn_norm.weight"},
    {"blk.#.ffn_gate.weight", "model.layers.#.feed_forward.w1.weight"},
    {"blk.#.ffn_down.weight", "model.layers.#.feed_forward.w2.weight"},
    {"blk.#.ffn_up.weight", "model.layers.#.feed_forward.w3.weight"},
};

void complete_llama(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_act", "silu");
  const bool attention = facts.has_tensor("blk.0.attn_q.bias"), mlp = facts.has_tensor("blk.0.ffn_gate.bias");
  config.set("attention_bias", attention);
  config.set("mlp_bias", mlp);
}

void complete_granite(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  config.set("embedding_multiplier", facts.number("embedding_scale").value_or(1.0));
  config.set("attention_multiplier", facts.number("attention.scale").value_or(1.0));
  config.set("residual_multiplier", facts.number("residual_scale").value_or(1.0));
  config.set("logits_scaling", facts.number("logit_scale").value_or(1.0));
}

void complete_smollm3(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  config.set("no_rope_layer_interval", 4);  // the format has no key: llama.cpp's graph has it fixed
}

void complete_olmo(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  if (const auto clip = facts.number("attention.clamp_kqv"); clip && *clip > 0) config.set("clip_qkv", *clip);
}

/// The same architecture name serves OLMo 3, which has windows.
void complete_olmo2(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  const auto window = facts.integer("attention.sliding_window", 0, int64_t{1} << 30).value_or(0);
  if (window == 0) return;
  config.set("model_type", "olmo3");
  config.set("architectures", std::vector<std::string>{"Olmo3ForCausalLM"});
  config.set("sliding_window", window);
  set_gguf_layer_types(facts, config, 4);
}

void complete_internlm2(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  config.set("bias", facts.has_tensor("blk.0.attn_q.bias"));
}

/// The scales that stand in the file are those of the graph, not the published ones.
void complete_minicpm(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  const auto layers = static_cast<double>(config.integer("num_hidden_layers"));
  const auto width = static_cast<double>(config.integer("hidden_size"));
  config.set("scale_emb", facts.number("embedding_scale").value_or(12.0));
  const auto residual = facts.number("residual_scale");
  config.set("scale_depth", residual ? *residual * std::sqrt(layers) : 1.4);
  const auto logits = facts.number("logit_scale");
  config.set("dim_model_base",
             logits && *logits > 0 ? static_cast<int64_t>(std::llround(width / *logits)) : 256);
}

void complete_seed_oss(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  config.set("attention_out_bias", facts.has_tensor("blk.0.attn_output.bias"));
}

void complete_ernie(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  config.set("use_bias", facts.has_tensor("blk.0.attn_q.bias"));
}

void complete_exaone(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  config.set("num_layers", config.integer("num_hidden_layers"));
  const bool newer = facts.number("attention.layer_norm_epsilon").has_value();  // an RMS norm's all the same
  require_gguf_number(facts, config,
                      newer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
                      "layer_norm_epsilon");
  config.set("activation_function", "silu");
}

void complete_exaone4(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  const auto window = facts.integer("attention.sliding_window", 0, int64_t{1} << 30).value_or(0);
  if (window == 0) return config.set("sliding_window", nullptr);
  config.set("sliding_window", window);
  set_gguf_layer_types(facts, config, 4);
}

void complete_qwen_vl(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  config.set("use_sliding_window", false);
}

/// Its base is as published, with the alpha that stretches it beside it.
void complete_hunyuan_vl(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  const auto alpha = facts.number("rope.scaling.alpha");
  if (!alpha || *alpha <= 0) return;
  ConfigDraft scaling;
  scaling.set("rope_type", "xdrope");
  scaling.set("alpha", *alpha);
  config.set("rope_scaling", scaling);
}

/// Ministral 3, or its elder kin where there is no temperature.
void complete_mistral3(const GgufFacts& facts, ConfigDraft& config) {
  complete_llama(facts, config);
  const auto beta = facts.number("attention.temperature_scale");
  if (!beta) {
    config.set("model_type", "mistral");
    return config.set("architectures", std::vector<std::string>{"MistralForCausalLM"});
  }
  auto scaling = gguf_rope_scaling(facts, config.integer("max_position_embeddings"));
  scaling.set("llama_4_scaling_beta", *beta);
  // Here the key holds mscale_all_dim itself.
  if (const auto all = facts.number("rope.scaling.yarn_log_multiplier"); all && *all > 0) {
    scaling.set("mscale", *all);
    scaling.set("mscale_all_dim", *all);
  }
  config.set("rope_scaling", scaling);
}

}  // namespace

std::span<const GgufArch> gguf_llama_kin() {
  const auto keys = gguf_decoder_keys(), sizes = gguf_size_keys();
  static const GgufArch archs[] = {
      {"granite", "granite", "GraniteForCausalLM", keys, permuted_names(), complete_granite},
      {"smollm3", "smollm3", "SmolLM3ForCausalLM", keys, permuted_names(), complete_smollm3},
      {"olmo", "olmo", "OlmoForCausalLM", sizes, permuted_names(), complete_olmo},
      {"olmo2", "olmo2", "Olmo2ForCausalLM", keys, norm_after_names(), complete_olmo2},
      {"internlm2", "internlm2", "InternLM2ForCausalLM", keys, kInternlm2Names, complete_internlm2},
      {"minicpm", "minicpm", "MiniCPMForCausalLM", keys, permuted_names(), complete_minicpm},
      {"seed_oss", "seed_oss", "SeedOssForCausalLM", keys, seed_oss_names(), complete_seed_oss},
      {"ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM", keys, llama_names(), complete_ernie},
      {"hunyuan-dense", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", keys, hunyuan_names(),
       complete_llama},
      {"hunyuan_vl", "hunyuan_vl", "HunYuanVLForConditionalGeneration", keys, hunyuan_names(),
       complete_hunyuan_vl},
      {"paddleocr", "paddleocr_vl", "PaddleOCRVLForConditionalGeneration", keys, llama_names(),
       complete_llama},
      {"mistral3", "ministral3", "Ministral3ForCausalLM", keys, permuted_names(), complete_mistral3},
      {"exaone", "exaone", "ExaoneForCausalLM", sizes, exaone_names(), complete_exaone},
      {"exaone4", "exaone4", "Exaone4ForCausalLM", keys, norm_after_names(), complete_exaone4},
      {"qwen2vl", "qwen2_vl", "Qwen2VLForConditionalGeneration", keys, llama_names(), complete_qwen_vl},
      {"qwen3vl", "qwen3_vl", "Qwen3VLForConditionalGeneration", keys, llama_names(), complete_qwen_vl}};
  return archs;
}

}  // namespace mlxcel
