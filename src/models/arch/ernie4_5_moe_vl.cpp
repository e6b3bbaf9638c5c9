// ERNIE 4.5 VL: the text side, which is ERNIE 4.5 with experts; each layer has a second set of experts, for
// tokens of images alone. Reference: transformers Ernie4_5_VLMoeForConditionalGeneration.
#include "models/kit.h"

namespace mlxcel {

namespace {

/// Leaves the experts of images out. Published files number them behind those of texts, keep routers as
/// [in, out] and the corrections of both as two rows.
std::vector<Rule> rules(const Config& whole, const Source& source) {
  const Config c = text_config(whole);
  std::vector<Rule> rules{
      drop("resampler_model.*"),
      drop("model.resampler_model.*"),
      drop("*.mlp.gate_1.*"),
      drop("*.mlp.switch_mlp_1.*"),
      drop("*.mlp.e_score_correction_bias_1"),
      rename("*.mlp.e_score_correction_bias", "*.mlp.moe_statics.e_score_correction_bias")};
  bool published = false, paired = false;
  for (const std::string& name : source.names()) {
    published |= name.ends_with(".mlp.gate.weight_1");
    if (!name.ends_with(".moe_statics.e_score_correction_bias")) continue;
    const auto found = source.find(name);
    paired |= found && found->shape.size() == 2 && found->shape[0] == 2;
  }
  if (published) {
    rules.push_back(drop("*.mlp.gate.weight_1"));
    rules.push_back(transpose("*.mlp.gate.weight"));
  }
  if (paired) {
    const std::string both = "*.moe_statics.e_score_correction_bias", images = "*.moe_statics.of_images";
    rules.push_back(split(both, {both, images}, {1, 1}));
    rules.push_back(drop(images));
  }
  const bool two = c.is_array("moe_num_experts");
  const auto counts = two ? c.get<std::vector<int>>("moe_num_experts")
                          : std::vector<int>(2, c.integer("moe_num_experts", 1, 4096, 64));
  if (counts.empty() || counts.size() > 2 || counts.front() > 4096 || counts.back() > 4096)
    fail(ErrorKind::bad_checkpoint, "{}: moe_num_experts: expected one or two numbers up to 4096", c.where());
  if (counts.size() == 2)
    for (int i = counts[0]; i < counts[0] + counts[1]; ++i)
      rules.push_back(drop(fmt::format("*.mlp.experts.{}.*", i)));
  return rules;
}

}  // namespace

Arch arch_ernie4_5_moe_vl() {
  Arch arch = text_side({.model_types = {"ernie4_5_moe_vl", "ernie4_5_vl_moe"},
                         .reference = "transformers Ernie4_5_VLMoeForConditionalGeneration",
                         .tiny = R"({"model_type": "ernie4_5_moe_vl", "vocab_size": 256, "hidden_size": 192,
              "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 6,
              "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": {"type": "default"},
              "use_bias": false, "moe_num_experts": [5, 5], "moe_k": 3,
              "moe_intermediate_size": [64, 32], "moe_num_shared_experts": 2, "moe_layer_start_index": [1, 1],
              "moe_layer_end_index": [2, 2], "moe_layer_interval": 1, "tie_word_embeddings": false})"},
                        "ernie4_5_moe");
  arch.weights = [own = std::move(arch.weights)](const Config& config, const Source& source) {
    return rules(config, source) + own(config, source);
  };
  return arch;
}

}  // namespace mlxcel
