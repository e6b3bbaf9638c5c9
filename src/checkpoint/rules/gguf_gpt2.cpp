// gpt2. The converter transposed the Conv1D matrices to [out, in], so the names are the ones under which MLX
// exports hold them in that layout ("model.h.…"); the published [in, out] ones have no "model." in front.

#include "checkpoint/rules/gguf_tables.h"

namespace mlxcel {

namespace {

using Kind = GgufKey::Kind;

constexpr GgufKey kKeys[] = {
    {"block_count", "n_layer", Kind::integer, true},
    {"context_length", "n_positions", Kind::integer, true},
    {"embedding_length", "n_embd", Kind::integer, true},
    {"feed_forward_length", "n_inner"},
    {"attention.head_count", "n_head", Kind::integer, true},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", Kind::number, true},
};

constexpr GgufName kNames[] = {
    {"token_embd.weight", "model.wte.weight"},
    {"position_embd.weight", "model.wpe.weight"},
    {"output_norm.*", "model.ln_f.*"},
    {"output.weight", "lm_head.weight"},
    {"blk.#.attn_norm.*", "model.h.#.ln_1.*"},
    {"blk.#.attn_qkv.*", "model.h.#.attn.c_attn.*"},
    {"blk.#.attn_output.*", "model.h.#.attn.c_proj.*"},
    {"blk.#.ffn_norm.*", "model.h.#.ln_2.*"},
    {"blk.#.ffn_up.*", "model.h.#.mlp.c_fc.*"},
    {"blk.#.ffn_down.*", "model.h.#.mlp.c_proj.*"},
};

void complete(const GgufFacts& facts, ConfigDraft& config) {
  // The converter writes four times the width, whatever the matrices are.
  if (const auto width = facts.rows("blk.0.ffn_up.weight")) config.set("n_inner", *width);
  config.set("n_ctx", config.integer("n_positions"));
  config.set("activation_function", "gelu_new");
}

}  // namespace

const GgufArch& gguf_gpt2() {
  static const GgufArch arch{"gpt2", "gpt2", "GPT2LMHeadModel", kKeys, kNames, complete};
  return arch;
}

}  // namespace mlxcel
