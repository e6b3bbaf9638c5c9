// Kimi K3: Kimi-Linear's mixers with output gates, experts in a narrower space behind bent gates, and in
// place of a plain residual a learned mix of what the blocks of layers before gave. Reference: mlx-lm
// kimi_k3.
#include <fmt/format.h>

#include <utility>

#include "models/kit.h"
#include "nn/delta.h"
#include "nn/gated_mla.h"
#include "nn/residual_mix.h"

namespace mlxcel {

namespace {

/// What stands before each block of layers in a step; the first layer begins it anew.
using Blocks = std::shared_ptr<std::vector<array>>;

struct Layer {
  Norm mixer_norm;
  Mixer mixer;
  Norm ffn_norm;
  Ffn ffn;
  std::optional<ResidualMix> before_mixer, before_ffn, last;  // last: behind the last layer
  Blocks blocks;
  bool first, begins;

  array operator()(const array& h, Step& step) const {
    if (!before_ffn) {
      const array a = mixer(mixer_norm(h), step, h);
      return ffn(ffn_norm(a), a);
    }
    if (first) blocks->clear();
    const array read = mixer_norm(before_mixer ? (*before_mixer)(*blocks, h) : h);
    if (begins) blocks->push_back(h);
    const array sum = begins ? mixer(read, step) : mixer(read, step, h);
    const array out = ffn(ffn_norm((*before_ffn)(*blocks, sum)), sum);
    if (!last) return out;
    const array mixed = (*last)(*blocks, out);
    blocks->clear();
    return mixed;
  }
};

/// The first layer has nothing to mix; its weights are published all the same.
std::optional<ResidualMix> nothing_before(const Weights& layer) {
  for (const char* name : {"self_attention_res_norm.weight", "self_attention_res_proj.weight",
                           "self_attention_res_score.weight"})
    if (layer.has(name)) layer.leave_out(name);
  return std::nullopt;
}

/// Layers with a delta memory, counted from one.
std::vector<bool> delta_layers(const Config& c, int layers) {
  std::vector<bool> list(static_cast<size_t>(layers), false);
  const Config block = c.child("linear_attn_config");
  for (const int i : block.get<std::vector<int>>("kda_layers")) {
    if (i < 1 || i > layers)
      fail(ErrorKind::bad_checkpoint, "{}: kda_layers: expected layers 1 to {}, found {}", block.where(),
           layers, i);
    list[static_cast<size_t>(i) - 1] = true;
  }
  return list;
}

KdaOptions delta(const Config& c, int hidden, float eps) {
  const Config block = c.child("linear_attn_config");
  return {.hidden = hidden,
          .heads = block.integer("num_heads", 1, 4096),
          .head_dim = block.integer("head_dim", 1, 8192),
          .taps = block.integer("short_conv_kernel_size", 2, 16),
          .eps = eps,
          .activation = Activation::silu,
          .lowest = block.get("gate_lower_bound", 0.0f),
          .whole_gate = block.get("use_full_rank_gate", false)};
}

MlaOptions latent(const Config& c, const Dims& d) {
  if (!c.get("mla_use_nope", true))
    fail(ErrorKind::unsupported, "{}: mla_use_nope false: rotated latent attention is not supported",
         c.where());
  MlaOptions o{.hidden = d.hidden, .heads = d.heads};
  o.q_rank = c.has("q_lora_rank") ? c.integer("q_lora_rank", 1, kMaxWidth) : 0;
  o.kv_rank = c.integer("kv_lora_rank", 1, 1 << 16);
  o.plain_dim = c.integer("qk_nope_head_dim", 1, 4096);
  o.rope_dim = c.integer("qk_rope_head_dim", 1, 4096);
  o.value_dim = c.integer("v_head_dim", 1, 4096);
  o.bias = Bias::none;
  return o;
}

ClampedGlu bent(const Config& c) {
  if (const auto kind = c.get<std::string>("hidden_act", "situ"); kind != "situ")
    fail(ErrorKind::unsupported, "{}: hidden_act \"{}\": expected situ", c.where(), kind);
  return {.bend = factor(c, "activation_situ_beta", 1.0f),
          .up_bend = c.has("activation_situ_linear_beta") ? factor(c, "activation_situ_linear_beta") : 0.0f};
}

MoeOptions experts(const Config& c, float eps) {
  if (const auto kind = c.get<std::string>("moe_router_activation_func", "sigmoid"); kind != "sigmoid")
    fail(ErrorKind::unsupported, "{}: moe_router_activation_func \"{}\": expected sigmoid", c.where(), kind);
  MoeOptions o;
  o.experts = c.integer("num_experts", 1, 4096);
  o.per_token = c.integer("num_experts_per_token", 1, o.experts, 16);
  o.width = c.integer("moe_intermediate_size", 1, kMaxWidth);
  o.bank = "switch_mlp";
  o.scoring = Scoring::sigmoid;
  o.correction = "e_score_correction_bias";
  o.renormalize = c.get("moe_renormalize", true) && o.per_token > 1;
  o.renorm_eps = 1e-20f;
  o.scale = c.get("routed_scaling_factor", 1.0f);
  o.groups = c.integer("num_expert_group", 1, o.experts, 1);
  o.kept_groups = c.integer("topk_group", 1, o.groups, 1);
  o.clamp = bent(c);
  if (const int shared = c.integer("num_shared_experts", 0, 64, 0); shared > 0)
    o.shared = {.width = o.width * shared, .clamp = bent(c)};
  if (c.has("routed_expert_hidden_size"))
    o.latent = {.width = c.integer("routed_expert_hidden_size", 1, kMaxWidth),
                .norm = c.get("latent_moe_use_norm", false) ? "routed_expert_norm" : "",
                .eps = eps};
  return o;
}

Decoder build(const Config& outer, const Weights& w) {
  const Config c = text_config(outer);
  const auto d = [&] {
    Dims dims;
    dims.vocab = c.integer("vocab_size", 1, kMaxVocab);
    dims.hidden = c.integer("hidden_size", 1, kMaxWidth);
    dims.layers = c.integer("num_hidden_layers", 1, kMaxLayers);
    dims.heads = c.integer("num_attention_heads", 1, kMaxHeads);
    dims.max_positions = c.integer("max_position_embeddings", 0, kMaxPositions, 0);
    return dims;
  }();
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto norm = rms_norms(d.hidden, eps);
  const auto memories = delta_layers(c, d.layers);
  const int dense = c.integer("first_k_dense_replace", 0, kMaxLayers, 0);
  const int every = c.integer("moe_layer_freq", 1, kMaxLayers, 1);
  const int run = c.has("attn_res_block_size") ? c.integer("attn_res_block_size", 1, kMaxLayers) : 0;
  const auto blocks = std::make_shared<std::vector<array>>();
  const auto mix = [&](const Weights& scope, const char* name) {
    return run == 0 ? std::nullopt : std::optional(ResidualMix(scope, name, d.hidden, eps));
  };
  const auto mixer = [&](int i, const Weights& scope) {
    if (memories[static_cast<size_t>(i)]) return Mixer(KdaMixer(scope, delta(c, d.hidden, eps)));
    return Mixer(GatedMla(scope, latent(c, d), c.get("mla_use_output_gate", false)));
  };
  const auto ffn = [&](int i, const Weights& scope) {
    if (i >= dense && i % every == 0) return Ffn(SparseMoe(scope, d.hidden, experts(c, eps)));
    return Ffn(GatedMlp(scope, d.hidden, c.integer("intermediate_size", 1, kMaxWidth), Activation::silu,
                        Bias::none, {}, bent(c)));
  };
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int i, const Weights& layer) {
    return Layer{.mixer_norm = norm(layer, "input_layernorm"),
                 .mixer = mixer(i, layer / "self_attn"),
                 .ffn_norm = norm(layer, "post_attention_layernorm"),
                 .ffn = ffn(i, layer / "mlp"),
                 .before_mixer = i == 0 ? nothing_before(layer) : mix(layer, "self_attention_res"),
                 .before_ffn = mix(layer, "mlp_res"),
                 .last = i == d.layers - 1 ? mix(w / "model", "output_attn_res") : std::nullopt,
                 .blocks = blocks,
                 .first = i == 0,
                 .begins = run > 0 && i % run == 0};
  });
}

std::vector<Rule> rules(const Config& outer, const Source&) {
  const Config c = text_config(outer);
  auto list = text_side_rules() + std::vector<Rule>{drop("mm_projector.*"), drop("model.mtp*"), drop("mtp*")};
  for (const char* name : {"self_attention_res", "mlp_res", "output_attn_res"})
    for (const char* leaf : {"proj", "norm"})
      list.push_back(
          rename(fmt::format("*{}.{}_weight", name, leaf), fmt::format("*{}_{}.weight", name, leaf)));
  list.push_back(rename("*.block_sparse_moe.gate.e_score_correction_bias", "*.mlp.e_score_correction_bias"));
  list.push_back(rename("*.block_sparse_moe.*", "*.mlp.*"));
  const std::pair<const char*, const char*> matrices[] = {
      {"w1", "gate_proj"}, {"w2", "down_proj"}, {"w3", "up_proj"}};
  for (const auto& [number, name] : matrices)
    list.push_back(stack(fmt::format("*.experts.#.{}.*", number), fmt::format("*.switch_mlp.{}.*", name)));
  const int heads = c.integer("num_attention_heads", 1, kMaxHeads);
  return list +
         heads_of_kv_b(heads, c.integer("qk_nope_head_dim", 1, 4096), c.integer("v_head_dim", 1, 4096));
}

}  // namespace

Arch arch_kimi_k3() {
  return {.model_types = {"kimi_k3"},
          .gguf = {"kimi-k3"},
          .reference = "mlx-lm kimi_k3",
          .build = build,
          .weights = rules,
          .tiny = R"({"model_type": "kimi_k3", "text_config": {"vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
              "max_position_embeddings": 512, "hidden_act": "situ", "activation_situ_beta": 1.5,
              "activation_situ_linear_beta": 2.5, "rms_norm_eps": 1e-5, "attn_res_block_size": 2, "q_lora_rank": 64,
              "kv_lora_rank": 64, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
              "mla_use_nope": true, "mla_use_output_gate": true, "first_k_dense_replace": 1, "num_experts": 8,
              "num_experts_per_token": 3, "moe_intermediate_size": 64, "moe_renormalize": true,
              "routed_scaling_factor": 1.5, "num_expert_group": 2, "topk_group": 1, "num_shared_experts": 1,
              "routed_expert_hidden_size": 64, "latent_moe_use_norm": true, "tie_word_embeddings": false,
              "linear_attn_config": {"num_heads": 3, "head_dim": 64, "short_conv_kernel_size": 4,
              "kda_layers": [1, 3, 4], "gate_lower_bound": -2.0, "use_full_rank_gate": true}}})"};
}

}  // namespace mlxcel
