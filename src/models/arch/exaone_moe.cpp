// EXAONE MoE: windows on most layers, no rotation on the others; DeepSeek-V3's experts. Reference:
// transformers ExaoneMoeForCausalLM.
#include "models/kit.h"
#include "models/sparse_decoder.h"

namespace mlxcel {

namespace {

/// "LLLG": a letter for each layer of a period; or the period, of which the last layer is global.
bool is_local(const Config& c, int i) {
  if (!c.is_string("sliding_window_pattern"))
    return (i + 1) % c.integer("sliding_window_pattern", 1, kMaxLayers, 4) != 0;
  const auto pattern = c.get<std::string>("sliding_window_pattern");
  if (pattern.empty() || pattern.find_first_not_of("LG") != std::string::npos)
    fail(ErrorKind::bad_checkpoint, "{}: sliding_window_pattern \"{}\": expected letters L and G", c.where(),
         pattern);
  return pattern[static_cast<size_t>(i) % pattern.size()] == 'L';
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  auto moe = MoeOptions::grouped(c);
  moe.scale = c.get("routed_scaling_factor", 2.5f);
  const auto rope = Rope::from(c, d);
  const int window = c.integer("sliding_window", 0, kMaxPositions, c.is_null("sliding_window") ? 0 : 4096);
  const auto plan = LayerPlan::from(c, d.layers, window, [&](int i) { return window > 0 && is_local(c, i); });

  return sparse_decoder(c, w, d, eps,
                        {[&](int i) {
                           return AttentionOptions{.rope = rope_if(window == 0 || plan.sliding(i), rope),
                                                   .qk_norm = HeadNormOptions{.eps = eps},
                                                   .window = plan.window(i),
                                                   .qkv_bias = Bias::none,
                                                   .out_bias = Bias::none};
                         },
                         moe, [&](int i) { return is_sparse(c, i, d.layers, 1); }});
}

/// Its layer is dense, and of one of the decoder's two kinds.
MtpBlock mtp(const Config& c, const Weights& w) {
  const auto d = Dims::from(c);
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const Weights own = w / "mtp", layer = own / "layers.0";
  const auto kinds = listed_kinds(c, "mtp_layer_types", c.integer("num_nextn_predict_layers", 1, 64, 1),
                                  {"sliding_attention", "full_attention"});
  const bool slides = !kinds.empty() && kinds[0] == "sliding_attention";
  const int window = c.integer("sliding_window", 0, kMaxPositions, c.is_null("sliding_window") ? 0 : 4096);
  const AttentionOptions attention{.rope = rope_if(window == 0 || slides, Rope::from(c, d)),
                                   .qk_norm = HeadNormOptions{.eps = eps},
                                   .window = slides ? window : 0,
                                   .qkv_bias = Bias::none,
                                   .out_bias = Bias::none};
  return qwen_mtp(own, d.hidden, eps,
                  {PreNorm{.mixer_norm = layer.rms_norm("input_layernorm", d.hidden, eps),
                           .mixer = Attention(layer / "self_attn", d, attention),
                           .ffn_norm = layer.rms_norm("post_attention_layernorm", d.hidden, eps),
                           .ffn = GatedMlp::from(c, layer / "mlp", d.hidden, Bias::none)}});
}

}  // namespace

Arch arch_exaone_moe() {
  return {
      .model_types = {"exaone_moe"},
      .gguf = {"exaone-moe"},
      .reference = "transformers ExaoneMoeForCausalLM",
      .build = build,
      .weights = std::vector<Rule>{drop("mtp.*"), rename("*.mlp.e_score_correction_bias",
                                                         "*.mlp.gate.e_score_correction_bias")} +
                 stack_experts(),
      .mtp = {.build = mtp, .weights = [](const Config&, const Source&) { return mtp_rules_of("mtp."); }},
      .tiny = R"({"model_type": "exaone_moe", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "sliding_window": 8, "sliding_window_pattern": "LGL", "first_k_dense_replace": 1, "num_experts": 8,
              "num_shared_experts": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_group": 2,
              "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
