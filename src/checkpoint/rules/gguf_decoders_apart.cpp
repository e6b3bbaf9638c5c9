// Dense decoders whose configs or graphs stand apart: apertus, openelm, deci, qwen,
// gptneox, muse-glimmer, plamo, bitnet.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr int64_t kMost = int64_t{1} << 30;

std::span<const GgufName> apertus_names() {
  static const auto names =
      gguf_llama_names({{"blk.#.attn_norm.weight", "model.layers.#.attention_layernorm.weight"},
                        {"blk.#.ffn_norm.weight", "model.layers.#.feedforward_layernorm.weight"}});
  return names;
}

/// Its activation's scalars stand in the metadata, without the architecture's prefix.
constexpr GgufListed kXielu[] = {{"xielu.alpha_p", "model.layers.#.mlp.act_fn.alpha_p"},
                                 {"xielu.alpha_n", "model.layers.#.mlp.act_fn.alpha_n"},
                                 {"xielu.beta", "model.layers.#.mlp.act_fn.beta"},
                                 {"xielu.eps", "model.layers.#.mlp.act_fn.eps"}};

void complete_apertus(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_act", "xielu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
}

constexpr GgufKey kOpenelmKeys[] = {
    {"block_count", "num_transformer_layers", Kind::integer, true},
    {"context_length", "max_context_length", Kind::integer, true},
    {"embedding_length", "model_dim", Kind::integer, true},
    {"attention.key_length", "head_dim", Kind::integer, true},
    {"rope.freq_base", "rope_freq_constant", Kind::number},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true},
};

std::span<const GgufName> openelm_names() {
  static const auto names =
      std::vector<GgufName>{
          {"token_embd.weight", "model.embed_tokens.weight"},
          {"output_norm.weight", "model.norm.weight"},
          {"blk.#.attn_norm.weight", "model.layers.#.attn_norm.weight"},
          {"blk.#.attn_qkv.weight", "model.layers.#.attn.qkv_proj.weight"},
          {"blk.#.attn_q_norm.weight", "model.layers.#.attn.q_norm.weight"},
          {"blk.#.attn_k_norm.weight", "model.layers.#.attn.k_norm.weight"},
          {"blk.#.attn_output.weight", "model.layers.#.attn.out_proj.weight"},
          {"blk.#.ffn_norm.weight", "model.layers.#.ffn_norm.weight"},
      } +
      gguf_unit("", "model.layers.#.ffn", {"gate_proj", "up_proj", "proj_2"});
  return names;
}

void complete_openelm(const GgufFacts& facts, ConfigDraft& config) {
  const auto layers = config.integer("num_transformer_layers"), width = config.integer("model_dim");
  if (width < 1) fail(ErrorKind::bad_checkpoint, "{}: a model of width {}", facts.file.first.string(), width);
  config.set("num_query_heads", facts.per_layer("attention.head_count", layers, 4096, 0));
  config.set("num_kv_heads", facts.per_layer("attention.head_count_kv", layers, 4096, 0));
  std::vector<double> multipliers;
  for (const int64_t wide : facts.per_layer("feed_forward_length", layers, kMost, 0))
    multipliers.push_back(static_cast<double>(wide) / static_cast<double>(width));
  config.set("ffn_multipliers", multipliers);
  config.set("ffn_dim_divisor", 1);
  config.set("ffn_with_glu", true);
  config.set("activation_fn_name", "swish");
  config.set("normalize_qk_projections", facts.has_tensor("blk.0.attn_q_norm.weight"));
  config.set("share_input_output_layers", !facts.has_tensor("output.weight"));
}

constexpr GgufKey kQwenKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"context_length", "max_position_embeddings", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"feed_forward_length", "intermediate_size", Kind::integer, true},
    {"attention.head_count", "num_attention_heads", Kind::integer, true},
    {"rope.dimension_count", "kv_channels"},
    {"rope.freq_base", "rotary_emb_base", Kind::number},
    {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon", Kind::number},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", Kind::number},  // newer converters' name for it
};

std::span<const GgufName> qwen_names() {
  static const auto names =
      std::vector<GgufName>{
          {"token_embd.weight", "model.embed_tokens.weight"},
          {"output_norm.weight", "model.norm.weight"},
          {"output.*", "lm_head.*"},
          {"blk.#.attn_norm.weight", "model.layers.#.ln_1.weight"},
          {"blk.#.attn_qkv.*", "model.layers.#.attn.c_attn.*"},
          {"blk.#.attn_output.*", "model.layers.#.attn.c_proj.*"},
          {"blk.#.ffn_norm.weight", "model.layers.#.ln_2.weight"},
      } +
      gguf_unit("", "model.layers.#.mlp", {"w2", "w1", "c_proj"});
  return names;
}

void complete_qwen(const GgufFacts& facts, ConfigDraft& config) {
  const auto hidden = config.integer("hidden_size"), heads = config.integer("num_attention_heads");
  if (heads < 1 || !config.contains("layer_norm_epsilon"))
    fail(ErrorKind::bad_checkpoint,
         "{}: {} heads; GGUF key {}attention.layer_norm_rms_epsilon: expected both",
         facts.file.first.string(), heads, facts.prefix);
  if (!config.contains("kv_channels")) config.set("kv_channels", hidden / heads);
  config.set("no_bias", !facts.has_tensor("blk.0.attn_output.bias"));
  config.erase("tie_word_embeddings");
}

std::span<const GgufKey> gpt_neox_keys() {
  static const auto keys =
      std::vector<GgufKey>{{"attention.layer_norm_epsilon", "layer_norm_eps", Kind::number, true},
                           {"rope.freq_base", "rotary_emb_base", Kind::number}} +
      gguf_size_keys();
  return keys;
}

/// q, k and v lie one after another where the published matrix has them head by head.
constexpr GgufName kGptNeoxNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.*", "model.norm.*"},
    {"output.weight", "embed_out.weight"},
    {"blk.#.attn_norm.*", "model.layers.#.input_layernorm.*"},
    {"blk.#.attn_qkv.*", "model.layers.#.attention.whole_query_key_value.*"},
    {"blk.#.attn_output.*", "model.layers.#.attention.dense.*"},
    {"blk.#.ffn_norm.*", "model.layers.#.post_attention_layernorm.*"},
    {"blk.#.ffn_up.*", "model.layers.#.mlp.dense_h_to_4h.*"},
    {"blk.#.ffn_down.*", "model.layers.#.mlp.dense_4h_to_h.*"},
};

void complete_gpt_neox(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  const auto rotated = facts.integer("rope.dimension_count", 2, 1 << 20).value_or(config.integer("head_dim"));
  config.set("rotary_pct", static_cast<double>(rotated) / static_cast<double>(config.integer("head_dim")));
  config.erase("partial_rotary_factor");
  config.erase("rope_theta");
  config.set("hidden_act", "gelu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_qkv.bias"));
  config.set("use_parallel_residual", facts.flag("use_parallel_residual").value_or(true));
}

std::span<const GgufKey> muse_keys() {
  static const auto keys =
      std::vector<GgufKey>{{"attention.sliding_window", "sliding_window", Kind::integer, true},
                           {"final_logit_softcapping", "final_logit_softcapping", Kind::number, true},
                           {"logit_scale", "output_multiplier", Kind::number, true}} +
      gguf_decoder_keys();
  return keys;
}

/// The norm of the queries is one factor, which the published config names.
std::span<const GgufName> muse_names() {
  static const auto names = gguf_llama_names(
      {{"blk.#.attn_q_norm.weight", ""},
       {"blk.#.attn_k_norm.weight", ""},
       {"blk.#.attn_gate.*", "model.layers.#.self_attn.gate_proj.*"},
       {"blk.#.attn_norm.weight", "model.layers.#.input_layernorm.weight", GgufChange::minus_one},
       {"blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight",
        GgufChange::minus_one},
       {"blk.#.ffn_norm.weight", "model.layers.#.pre_feedforward_layernorm.weight", GgufChange::minus_one},
       {"blk.#.post_ffw_norm.weight", "model.layers.#.post_feedforward_layernorm.weight",
        GgufChange::minus_one}},
      true);
  return names;
}

void complete_muse(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  config.set("hidden_activation", "silu");
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
  if (!facts.has_tensor("blk.0.attn_q_norm.weight"))
    fail(ErrorKind::bad_checkpoint, "{}: blk.0.attn_q_norm.weight: missing", facts.file.first.string());
  const auto factors = gguf_divisors(facts, "blk.0.attn_q_norm.weight", config.integer("head_dim"));
  if (std::count(factors.begin(), factors.end(), factors.front()) !=
      static_cast<std::ptrdiff_t>(factors.size()))
    fail(ErrorKind::unsupported, "{}: blk.0.attn_q_norm.weight: expected one factor, found several",
         facts.file.first.string());
  config.set("qk_scale_factor", factors.front());
  // Layers with a window are those that rotate.
  const auto layers = config.integer("num_hidden_layers");
  const auto sliding = facts.flags("attention.sliding_window_pattern", layers);
  if (sliding.empty())
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}attention.sliding_window_pattern: missing",
         facts.file.first.string(), facts.prefix);
  set_gguf_layer_types(facts, config, 4);
  std::vector<double> bases;
  for (const bool slides : sliding)
    bases.push_back(slides ? facts.number("rope.freq_base").value_or(10000.0) : 0.0);
  config.set("layer_rope_theta", bases);
}

constexpr GgufKey kDeciKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"context_length", "max_position_embeddings", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"attention.key_length", "head_dim"},
    {"rope.freq_base", "rope_theta", Kind::number},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true},
};

std::span<const GgufName> deci_names() {
  static const auto names = gguf_llama_names({}, true);
  return names;
}

/// Layers without heads have no attention, feed-forwards of width 0 are left out.
void complete_deci(const GgufFacts& facts, ConfigDraft& config) {
  const auto layers = config.integer("num_hidden_layers"), hidden = config.integer("hidden_size");
  const auto heads = facts.per_layer("attention.head_count", layers, 4096, 0),
             keys = facts.per_layer("attention.head_count_kv", layers, 4096, 0),
             widths = facts.per_layer("feed_forward_length", layers, kMost, 0);
  const auto most = *std::max_element(heads.begin(), heads.end());
  if (most < 1 || hidden < 1)
    fail(ErrorKind::bad_checkpoint, "{}: {} heads over width {}", facts.file.first.string(), most, hidden);
  config.set("num_attention_heads", most);
  complete_gguf_rope(facts, config);
  config.erase("num_key_value_heads");
  config.set("hidden_act", "silu");
  config.set("attention_bias", false);
  config.set("mlp_bias", false);
  std::vector<ConfigDraft> blocks;
  for (size_t i = 0; i < heads.size(); ++i) {
    ConfigDraft block, attention, ffn;
    if (heads[i] == 0) {
      attention.set("no_op", true);
    } else if (keys[i] == 0) {
      fail(ErrorKind::unsupported, "{}: layer {} has one matrix for its attention, which is not mapped",
           facts.file.first.string(), i);
    } else if (heads[i] != most || most % keys[i] != 0) {
      fail(ErrorKind::bad_checkpoint,
           "{}: layer {}: {} heads over {} key heads: expected {} heads and a divisor of it",
           facts.file.first.string(), i, heads[i], keys[i], most);
    } else {
      attention.set("n_heads_in_group", most / keys[i]);
    }
    // Published configs name a multiple of the model's width, which is rounded up to 256.
    if (widths[i] % 256 != 0)
      fail(ErrorKind::unsupported, "{}: layer {}: a feed-forward of width {}: expected a multiple of 256",
           facts.file.first.string(), i, widths[i]);
    if (widths[i] == 0)
      ffn.set("no_op", true);
    else
      ffn.set("ffn_mult", 1.5 * (static_cast<double>(widths[i]) - 0.5) / static_cast<double>(hidden));
    block.set("attention", attention);
    block.set("ffn", ffn);
    blocks.push_back(block);
  }
  config.set("block_configs", blocks);
}

std::span<const GgufName> plamo_names() {
  static const auto names = gguf_llama_names({{"blk.#.attn_norm.weight", "model.layers.#.norm.weight"}});
  return names;
}

/// Query heads that read one key head stand side by side in the file; the published ones take turns.
void complete_plamo(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  const auto heads = config.integer("num_attention_heads"), keys = config.integer("num_key_value_heads");
  if (keys < 1 || heads % keys != 0)
    fail(ErrorKind::bad_checkpoint, "{}: {} heads over {} key heads: expected a whole multiple",
         facts.file.first.string(), heads, keys);
  config.set("n_shared_head", heads / keys);
  config.set("shared_heads_in_turn", false);
  config.set("hidden_act", "silu");
}

std::span<const GgufName> bitnet_names() {
  static const auto names =
      gguf_llama_names({{"blk.#.attn_sub_norm.weight", "model.layers.#.self_attn.attn_sub_norm.weight"},
                        {"blk.#.ffn_sub_norm.weight", "model.layers.#.mlp.ffn_sub_norm.weight"}});
  return names;
}

/// Files without an activation's name are those of the first models, whose gates are SiLU.
void complete_bitnet(const GgufFacts& facts, ConfigDraft& config) {
  complete_gguf_rope(facts, config);
  const auto activation = gguf_string(facts.file.metadata, facts.prefix + "hidden_activation");
  config.set("hidden_act", activation.value_or("silu").c_str());
  config.set("attention_bias", facts.has_tensor("blk.0.attn_q.bias"));
}

}  // namespace

std::span<const GgufArch> gguf_decoders_apart() {
  static const GgufArch archs[] = {
      {"apertus", "apertus", "ApertusForCausalLM", gguf_decoder_keys(), apertus_names(), complete_apertus,
       kXielu},
      {"openelm", "openelm", "OpenELMForCausalLM", kOpenelmKeys, openelm_names(), complete_openelm},
      {"deci", "nemotron-nas", "DeciLMForCausalLM", kDeciKeys, deci_names(), complete_deci},
      {"qwen", "qwen", "QWenLMHeadModel", kQwenKeys, qwen_names(), complete_qwen},
      {"gptneox", "gpt_neox", "GPTNeoXForCausalLM", gpt_neox_keys(), kGptNeoxNames, complete_gpt_neox},
      {"muse-glimmer", "muse_glimmer", "MuseGlimmerForConditionalGeneration", muse_keys(), muse_names(),
       complete_muse},
      {"plamo", "plamo", "PlamoForCausalLM", gguf_decoder_keys(), plamo_names(), complete_plamo},
      {"bitnet", "bitnet", "BitNetForCausalLM", gguf_decoder_keys(), bitnet_names(), complete_bitnet}};
  return archs;
}

}  // namespace mlxcel
