// Kimi Linear: delta layers whose memory fades channel by channel, latent attention without positions every
// fourth, experts routed as DeepSeek-V3's. Reference: transformers KimiLinearForCausalLM.
#include "models/kit.h"
#include "nn/delta.h"
#include "nn/mla.h"

namespace mlxcel {

namespace {

/// The first of several spellings that the config has.
int either(const Config& c, const char* key, const char* older, int low, int high, int fallback) {
  return c.integer(c.has(key) ? key : older, low, high, fallback);
}

/// Layers with full attention: layer_types, else linear_attn_config's lists, counted from one.
std::vector<bool> full_layers(const Config& c, int layers) {
  std::vector<bool> full(static_cast<size_t>(layers), false);
  const auto kinds = listed_kinds(c, "layer_types", layers, {"linear_attention", "full_attention"});
  for (size_t i = 0; i < kinds.size(); ++i) full[i] = kinds[i] == "full_attention";
  if (!kinds.empty()) return full;
  const Config block = c.child("linear_attn_config");
  if (!block.has("full_attn_layers")) {
    for (size_t i = 4; i < full.size(); i += 4) full[i] = true;
    return full;
  }
  for (const int i : block.get<std::vector<int>>("full_attn_layers")) {
    if (i < 1 || i > layers)
      fail(ErrorKind::bad_checkpoint, "{}: full_attn_layers: expected layers 1 to {}, found {}",
           block.where(), layers, i);
    full[static_cast<size_t>(i) - 1] = true;
  }
  return full;
}

KdaOptions delta(const Config& c, int hidden, float eps) {
  const Config block = c.child("linear_attn_config");
  KdaOptions o{.hidden = hidden, .eps = eps};
  o.heads = block.integer("num_heads", 1, 4096, c.integer("linear_num_heads", 1, 4096, 32));
  o.head_dim = block.integer("head_dim", 1, 8192, c.integer("linear_head_dim", 1, 8192, 128));
  o.taps = block.integer("short_conv_kernel_size", 2, 16, c.integer("linear_conv_kernel_dim", 2, 16, 4));
  o.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  return o;
}

MlaOptions latent(const Config& c, const Dims& d) {
  MlaOptions o{.hidden = d.hidden, .heads = d.heads};
  o.q_rank = c.has("q_lora_rank") ? c.integer("q_lora_rank", 1, kMaxWidth) : 0;
  o.kv_rank = c.integer("kv_lora_rank", 1, kMaxWidth, 512);
  o.plain_dim = c.integer("qk_nope_head_dim", 1, 8192, 128);
  o.rope_dim = c.integer("qk_rope_head_dim", 1, 8192, 64);
  o.value_dim = c.integer("v_head_dim", 1, 8192, 128);
  o.bias = bias_if(c.get("attention_bias", false));
  return o;
}

MoeOptions experts(const Config& c) {
  MoeOptions o;
  o.experts = either(c, "num_experts", "num_local_experts", 1, 4096, 256);
  o.per_token = either(c, "num_experts_per_token", "num_experts_per_tok", 1, o.experts, 8);
  o.width = c.integer("moe_intermediate_size", 1, kMaxWidth, 1024);
  o.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  o.bank = "switch_mlp";
  o.scoring = Scoring::sigmoid;
  o.correction = "gate.e_score_correction_bias";
  o.renormalize = c.get("moe_renormalize", c.get("norm_topk_prob", true));
  o.renorm_eps = 1e-20f;
  o.scale = c.get("routed_scaling_factor", 2.446f);
  o.groups = either(c, "num_expert_group", "n_group", 1, o.experts, 1);
  o.kept_groups = c.integer("topk_group", 1, o.groups, 1);
  o.shared = {.width = o.width * either(c, "num_shared_experts", "n_shared_experts", 1, 64, 1)};
  return o;
}

Decoder build(const Config& c, const Weights& w) {
  Dims d;
  d.vocab = c.integer("vocab_size", 1, kMaxVocab);
  d.hidden = c.integer("hidden_size", 1, kMaxWidth);
  d.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  d.heads = c.integer("num_attention_heads", 1, 4096, 32);
  d.max_positions = either(c, "model_max_length", "max_position_embeddings", 0, kMaxPositions, 0);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto full = full_layers(c, d.layers);
  const int width = c.integer("intermediate_size", 1, kMaxWidth, 9216);
  const auto activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  const auto mixer = [&](int i, const Weights& scope) {
    return full[static_cast<size_t>(i)] ? Mixer(Mla(scope, latent(c, d)))
                                        : Mixer(KdaMixer(scope, delta(c, d.hidden, eps)));
  };
  const auto ffn = [&](int i, const Weights& scope) {
    if (is_sparse(c, i, d.layers, 1)) return Ffn(SparseMoe(scope, d.hidden, experts(c)));
    return Ffn(GatedMlp(scope, d.hidden, width, activation, Bias::none));
  };

  Decoder model(d, w.embedding("model.embed_tokens", d.vocab, d.hidden));
  for (const auto& [i, layer] : w.layers("model.layers", d.layers))
    model.add(PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                      .mixer = mixer(i, layer / "self_attn"),
                      .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                      .ffn = ffn(i, layer / "mlp")});
  model.finish(w.rms_norm("model.norm", d.hidden, eps),
               make_head(w, "lm_head", "model.embed_tokens", model.embedding(),
                         tie_if(c.get("tie_word_embeddings", false))));
  return model;
}

std::vector<Rule> weights(const Config& c, const Source&) {
  std::vector<Rule> rules{drop("*.mtp.*"),
                          rename("*.block_sparse_moe.*", "*.mlp.*"),
                          rename("*.experts.#.w1.*", "*.experts.#.gate_proj.*"),
                          rename("*.experts.#.w2.*", "*.experts.#.down_proj.*"),
                          rename("*.experts.#.w3.*", "*.experts.#.up_proj.*"),
                          stack("*.mlp.experts.#.*", "*.mlp.switch_mlp.*")};
  const auto o = latent(c, {});
  for (Rule& rule : heads_of_kv_b(c.integer("num_attention_heads", 1, 4096, 32), o.plain_dim, o.value_dim))
    rules.push_back(std::move(rule));
  return rules;
}

}  // namespace

Arch arch_kimi_linear() {
  return {
      .model_types = {"kimi_linear"},
      .gguf = {"kimi-linear"},
      .reference = "transformers KimiLinearForCausalLM",
      .build = build,
      .weights = weights,
      .tiny = R"({"model_type": "kimi_linear", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 3, "num_attention_heads": 4, "model_max_length": 512, "hidden_act": "silu",
              "rms_norm_eps": 1e-5, "kv_lora_rank": 64, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8,
              "v_head_dim": 32, "first_k_dense_replace": 1, "num_experts": 8, "num_experts_per_token": 3,
              "moe_intermediate_size": 64, "moe_renormalize": true, "routed_scaling_factor": 1.5,
              "num_expert_group": 2, "topk_group": 1, "num_shared_experts": 2, "tie_word_embeddings": false,
              "linear_attn_config": {"num_heads": 3, "head_dim": 64, "short_conv_kernel_size": 4,
                                     "full_attn_layers": [2]}})"};
}

}  // namespace mlxcel
