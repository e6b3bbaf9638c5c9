// ERNIE 4.5 with experts: interleaved rotation; softmax scores chosen with a correction bias, their sum kept
// from zero. Reference: transformers Ernie4_5_MoeForCausalLM.
#include <algorithm>
#include <functional>

#include "models/kit.h"

namespace mlxcel {

namespace {

/// One number, or one for texts and one for images (ERNIE 4.5 VL), of which `choose` takes one.
int number(const Config& c, const char* key, int low, int high, int fallback,
           const std::function<int(const std::vector<int>&)>& choose) {
  if (!c.is_array(key)) return c.integer(key, low, high, fallback);
  const auto both = c.get<std::vector<int>>(key);
  const int found = both.empty() ? -1 : choose(both);
  if (found < low || found > high)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected numbers from {} to {}, found {}", c.where(), key, low,
         high, both.empty() ? "an empty list" : std::to_string(found));
  return found;
}

int of_texts(const std::vector<int>& both) { return both.front(); }
int least(const std::vector<int>& both) { return *std::min_element(both.begin(), both.end()); }
int most(const std::vector<int>& both) { return *std::max_element(both.begin(), both.end()); }

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = number(c, "moe_num_experts", 1, 4096, 64, of_texts);
  moe.per_token = c.integer("moe_k", 1, moe.experts, 6);
  moe.width = number(c, "moe_intermediate_size", 1, 1 << 16, 1536, of_texts);
  moe.activation = activation_from(c.get<std::string>("hidden_act", "silu"));
  const auto gate = c.get<std::string>("moe_gate_act", "softmax");
  if (gate != "softmax" && gate != "sigmoid")
    fail(ErrorKind::unsupported, "{}: moe_gate_act \"{}\": expected softmax or sigmoid", c.where(), gate);
  moe.scoring = gate == "softmax" ? Scoring::softmax : Scoring::sigmoid;
  moe.correction = "moe_statics.e_score_correction_bias";
  moe.renormalize = true;
  moe.renorm_floor = c.get("moe_norm_min", 1e-12f);
  moe.bank = "switch_mlp";
  moe.shared.width = moe.width * c.integer("moe_num_shared_experts", 0, 16, 2);
  return moe;
}

std::function<bool(int)> sparse_layers(const Config& c, int layers) {
  if (c.is_array("mlp_layer_types")) return [c, layers](int i) { return is_sparse(c, i, layers); };
  const int first = number(c, "moe_layer_start_index", 0, kMaxLayers, 1, least);
  const int interval = c.integer("moe_layer_interval", 1, kMaxLayers, 1);
  // -1 stands for the last layer, and integers of configs have no sign.
  const bool listed = c.is_array("moe_layer_end_index");
  const int last = !listed && c.get("moe_layer_end_index", -1.0f) < 0.0f
                       ? layers - 1
                       : number(c, "moe_layer_end_index", 0, kMaxLayers, 0, most);
  return [=](int i) { return (i + 1) % interval == 0 && i >= first && i <= last; };
}

Decoder build(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 4});
  const auto moe = experts(c);
  const auto rope = Rope::from(c, d, {.theta = 500000.0f, .interleaved = true});
  const Bias bias = bias_if(c.get("use_bias", false));
  const auto sparse = sparse_layers(c, d.layers);

  return pre_norm_decoder(c, w, d, epsilon(c, "rms_norm_eps", 1e-5f),
                          {.mixer =
                               [&](int, const Weights& layer) {
                                 return Attention(layer / "self_attn", d,
                                                  {.rope = rope, .qkv_bias = bias, .out_bias = bias});
                               },
                           .ffn =
                               [&](int i, const Weights& layer) {
                                 return sparse_or_dense(layer / "mlp", c, d.hidden, moe, sparse(i));
                               }},
                          true);
}

/// A dense layer, whose output goes to the head as it is.
MtpBlock mtp(const Config& c, const Weights& w) {
  const auto d = Dims::from(c, {.kv_heads = 4});
  const float eps = epsilon(c, "rms_norm_eps", 1e-5f);
  const Bias bias = bias_if(c.get("use_bias", false));
  const Weights own = w / "mtp";
  return {.embedding_norm = own.rms_norm("emb_norm", d.hidden, eps),
          .hidden_norm = own.rms_norm("hidden_norm", d.hidden, eps),
          .join = own.linear("linear_proj", d.hidden, 2 * d.hidden),
          .layers = {PreNorm{
              .mixer_norm = own.rms_norm("input_layernorm", d.hidden, eps),
              .mixer = Attention(own / "self_attn", d,
                                 {.rope = Rope::from(c, d, {.theta = 500000.0f, .interleaved = true}),
                                  .qkv_bias = bias,
                                  .out_bias = bias}),
              .ffn_norm = own.rms_norm("post_attention_layernorm", d.hidden, eps),
              .ffn = GatedMlp::from(c, own / "mlp", d.hidden)}},
          .norm = std::nullopt,
          .goes_on_normed = false};
}

std::vector<Rule> mtp_rules() {
  return std::vector<Rule>{rename("model.mtp_emb_norm.0.*", "mtp.emb_norm.*"),
                           rename("model.mtp_hidden_norm.0.*", "mtp.hidden_norm.*"),
                           rename("model.mtp_linear_proj.0.*", "mtp.linear_proj.*")} +
         mtp_rules_of("model.mtp_block.0.");
}

}  // namespace

Arch arch_ernie4_5_moe() {
  return {
      .model_types = {"ernie4_5_moe", "ernie4.5_moe"},
      .gguf = {"ernie4_5-moe"},
      .reference = "transformers Ernie4_5_MoeForCausalLM",
      .build = build,
      .weights = std::vector<Rule>{drop("*.mtp_*"), drop("mtp_*")} + stack_experts(),
      .mtp = {.build = mtp, .weights = mtp_rules()},
      .tiny =
          R"({"model_type": "ernie4_5_moe", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "use_bias": true, "moe_num_experts": 5, "moe_k": 3, "moe_intermediate_size": 64,
              "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": 2,
              "moe_layer_interval": 1, "moe_norm_min": 1e-12, "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
