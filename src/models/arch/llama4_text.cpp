// Llama 4's text: rotated layers see their own chunk only and norm q and k without weights; the others see
// everything and sharpen their queries by position. Sparse layers weigh what an expert reads by a sigmoid,
// beside a shared one. Reference: transformers Llama4ForCausalLM.
#include <algorithm>

#include "models/kit.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_local_experts", 1, 4096, 16);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 1);
  moe.width = c.integer("intermediate_size", 1, kMaxWidth, 8192);
  moe.activation = activation_from(c, "hidden_act", "silu");
  moe.router = "router";
  moe.scoring = Scoring::sigmoid;
  moe.weighs_input = true;
  moe.shared = {.width = moe.width, .name = "shared_expert"};
  return moe;
}

/// Those that moe_layers lists, else every so many; dense checkpoints name neither a list nor experts.
bool is_sparse(const Config& c, int i) {
  const int step = c.integer("interleave_moe_layer_step", 0, kMaxLayers, 1);
  if (!c.has("moe_layers")) return c.has("num_local_experts") && step > 0 && (i + 1) % step == 0;
  const auto listed = c.get<std::vector<int>>("moe_layers");
  return std::find(listed.begin(), listed.end(), i) != listed.end();
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8, .head_dim = 128});
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const int width = c.integer("intermediate_size_mlp", 1, kMaxWidth, 16384);
  const auto activation = activation_from(c, "hidden_act", "silu");
  const Bias bias = bias_if(c.get("attention_bias", false));
  const auto rotated = rotated_layers(c, d.layers, 4);
  const int chunk =
      c.is_null("attention_chunk_size") ? 0 : c.integer("attention_chunk_size", 1, kMaxPositions, 8192);
  // The mask has a list of its own; where it is left out, rotated layers are those in chunks.
  const auto kinds = listed_kinds(c, "layer_types", d.layers, {"chunked_attention", "full_attention"});
  const auto rope = Rope::from(c, d, {.theta = 500000.0f, .interleaved = true});
  std::optional<QueryTemperature> temperature;
  if (c.get("attn_temperature_tuning", true))
    temperature = {.factor = c.get("attn_scale", 0.1f),
                   .length = c.integer("floor_scale", 1, kMaxPositions, 8192),
                   .shift = 1};
  std::optional<HeadNormOptions> qk_norm;
  if (c.get("use_qk_norm", true)) qk_norm = {.eps = eps, .weighted = false, .after_rope = true};
  const auto ffn = [&](int i, const Weights& scope) {
    if (is_sparse(c, i)) return Ffn(SparseMoe(scope, d.hidden, experts(c)));
    return Ffn(GatedMlp(scope, d.hidden, width, activation, Bias::none));
  };
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int i, const Weights& layer) {
    const bool turns = rotated[static_cast<size_t>(i)];
    AttentionOptions attention{.rope = rope_if(turns, rope), .qkv_bias = bias, .out_bias = bias};
    if (kinds.empty() ? turns : kinds[static_cast<size_t>(i)] == "chunked_attention") attention.chunk = chunk;
    if (turns) {
      attention.qk_norm = qk_norm;
    } else {
      attention.temperature = temperature;
    }
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = Attention(layer / "self_attn", d, attention),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = ffn(i, layer / "feed_forward")};
  });
}

/// Experts are published as they are multiplied: [experts, in, out], gate and up in one.
std::vector<Rule> rules() {
  return {
      rename("output.*", "lm_head.*"), transpose("*.experts.gate_up_proj"), transpose("*.experts.down_proj"),
      split_axis(-2, "*.experts.gate_up_proj", {"*.experts.gate_proj.weight", "*.experts.up_proj.weight"}),
      rename("*.experts.down_proj", "*.experts.down_proj.weight")};
}

}  // namespace

Arch arch_llama4_text() {
  return {.model_types = {"llama4_text"},
          .reference = "transformers Llama4ForCausalLM",
          .build = build,
          .weights = rules(),
          .tiny = R"({"model_type": "llama4_text", "vocab_size": 256, "hidden_size": 192,
              "intermediate_size_mlp": 128, "num_hidden_layers": 3, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-2, "rope_theta": 10000.0, "moe_layers": [], "no_rope_layers": [1, 0, 1],
              "interleave_moe_layer_step": 1, "attention_chunk_size": 9, "attn_temperature_tuning": true,
              "floor_scale": 7, "attn_scale": 0.5, "use_qk_norm": true, "attention_bias": true,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
