// mamba2. ssm_a holds -exp(A_log); the convolution comes as [channels, taps], ssm_d and ssm_a as [heads, 1].
#include <limits>

#include "base/error.h"
#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr GgufKey kKeys[] = {
    {"block_count", "num_hidden_layers", Kind::integer, true},
    {"embedding_length", "hidden_size", Kind::integer, true},
    {"ssm.conv_kernel", "conv_kernel", Kind::integer, true},
    {"ssm.state_size", "state_size", Kind::integer, true},
    {"ssm.group_count", "n_groups", Kind::integer, true},
    {"ssm.time_step_rank", "num_heads", Kind::integer, true},
    {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon", Kind::number, true},
};

constexpr GgufName kNames[] = {
    {"token_embd.weight", "backbone.embeddings.weight"},
    {"output_norm.weight", "backbone.norm_f.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.#.attn_norm.weight", "backbone.layers.#.norm.weight"},
    {"blk.#.ssm_in.*", "backbone.layers.#.mixer.in_proj.*"},
    {"blk.#.ssm_conv1d.weight", "backbone.layers.#.mixer.conv1d.weight", GgufChange::convolution},
    {"blk.#.ssm_conv1d.bias", "backbone.layers.#.mixer.conv1d.bias"},
    {"blk.#.ssm_dt.bias", "backbone.layers.#.mixer.dt_bias"},
    {"blk.#.ssm_a", "backbone.layers.#.mixer.A_log", GgufChange::log_negated},
    {"blk.#.ssm_d", "backbone.layers.#.mixer.D", GgufChange::flatten},
    {"blk.#.ssm_norm.weight", "backbone.layers.#.mixer.norm.weight", GgufChange::flatten},
    {"blk.#.ssm_out.*", "backbone.layers.#.mixer.out_proj.*"},
};

void complete(const GgufFacts& facts, ConfigDraft& config) {
  const auto inner = facts.integer("ssm.inner_size", 1, int64_t{1} << 30);
  const auto heads = config.integer("num_heads"), hidden = config.integer("hidden_size");
  if (!inner || heads < 1 || hidden < 1 || *inner % heads != 0 || *inner % hidden != 0)
    fail(ErrorKind::bad_checkpoint,
         "{}: GGUF key mamba2.ssm.inner_size: expected a multiple of {} heads and of {}",
         facts.file.first.string(), heads, hidden);
  config.set("head_dim", *inner / heads);
  config.set("expand", *inner / hidden);
  config.set("hidden_act", "silu");
  config.set("use_conv_bias", facts.has_tensor("blk.0.ssm_conv1d.bias"));
  config.set("use_bias", facts.has_tensor("blk.0.ssm_in.bias"));
  // Not in the format: llama.cpp's graph applies softplus to dt without limits.
  config.set("time_step_limit", std::vector<double>{0.0, std::numeric_limits<float>::max()});
  config.set("norm_before_gate", false);
  config.set("rms_norm", true);
  config.set("residual_in_fp32", true);
  config.set("chunk_size", 256);
}

}  // namespace

const GgufArch& gguf_mamba2() {
  static const GgufArch arch{"mamba2", "mamba2", "Mamba2ForCausalLM", kKeys, kNames, complete};
  return arch;
}

}  // namespace mlxcel
