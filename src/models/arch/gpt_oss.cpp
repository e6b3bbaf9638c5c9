// gpt-oss: windows on every second layer, a learned sink per head, experts with biases and a clamped gate.
// Reference: transformers GptOssForCausalLM.
#include "models/kit.h"
#include "models/usual_rope.h"

namespace mlxcel {

namespace {

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_local_experts", 1, 4096);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 4);
  moe.width = c.integer("intermediate_size", 1, kMaxWidth);
  moe.router = "router";
  moe.router_bias = Bias::required;
  moe.scoring = Scoring::chosen_softmax;
  moe.expert_bias = Bias::required;
  moe.clamp = ClampedGlu{
      .limit = c.get("swiglu_limit", 7.0f), .alpha = c.get("swiglu_alpha", 1.702f), .offset = 1.0f};
  return moe;
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 8, .head_dim = 64});
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const auto moe = experts(c);
  const auto rope = rope_or(c, d, {.theta = 150000.0f},
                            R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                "truncate": false, "original_max_position_embeddings": 4096})");
  const auto plan = LayerPlan::from(c, d.layers, c.integer("sliding_window", 0, kMaxPositions, 128),
                                    [](int i) { return i % 2 == 0; });
  const Bias bias = bias_if(c.get("attention_bias", true));

  return pre_norm_decoder(
      c, w, d, eps,
      {.mixer =
           [&](int i, const Weights& layer) {
             return Attention(
                 layer / "self_attn", d,
                 {.rope = rope, .window = plan.window(i), .sinks = true, .qkv_bias = bias, .out_bias = bias});
           },
       .ffn = [&](int, const Weights& layer) { return SparseMoe(layer / "mlp", d.hidden, moe); }});
}

}  // namespace

Arch arch_gpt_oss() {
  // Published with gate and up rows in turn; dense exports keep [in, out].
  return {.model_types = {"gpt_oss"},
          .gguf = {"gpt-oss"},
          .reference = "transformers GptOssForCausalLM",
          .build = build,
          .weights = {transpose("*.experts.gate_up_proj"), transpose("*.experts.down_proj"),
                      rename("*.experts.gate_up_proj", "*.experts.gate_up_proj.weight"),
                      rename("*.experts.down_proj", "*.experts.down_proj.weight"),
                      rename("*.experts.down_proj_bias", "*.experts.down_proj.bias"),
                      deal(-2, "*.experts.gate_up_proj.weight",
                           {"*.experts.gate_proj.weight", "*.experts.up_proj.weight"}),
                      deal(-1, "*.experts.gate_up_proj_bias",
                           {"*.experts.gate_proj.bias", "*.experts.up_proj.bias"})},
          .tiny = R"({"model_type": "gpt_oss", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64,
              "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 150000.0,
              "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
              "truncate": false, "original_max_position_embeddings": 64}, "sliding_window": 8,
              "num_local_experts": 6, "num_experts_per_tok": 3, "swiglu_limit": 0.6,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
