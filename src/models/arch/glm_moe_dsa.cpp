// GLM-5: DeepSeek-V3.2's graph, the indexer turned in neighbours; some layers take the choice of the layer
// before. Reference: transformers GlmMoeDsaForCausalLM.
#include <algorithm>

#include "models/kit.h"
#include "models/latent_moe.h"
#include "nn/indexer.h"

namespace mlxcel {

namespace {

/// Which layers choose keys of their own: a list, a pattern of F and S, or every so many layers.
std::vector<bool> choosing(const Config& c, int layers) {
  std::vector<std::string> types;
  if (c.has("indexer_types")) {
    types = c.get<std::vector<std::string>>("indexer_types");
  } else if (c.is_string("index_topk_pattern")) {
    for (const char kind : c.get<std::string>("index_topk_pattern"))
      types.push_back(kind == 'F' ? "full" : kind == 'S' ? "shared" : std::string(1, kind));
  } else if (c.has("index_topk_pattern")) {
    types = c.get<std::vector<std::string>>("index_topk_pattern");
  } else {
    const int every = std::max(1, c.integer("index_topk_freq", 0, kMaxLayers, 1));
    const int offset = c.integer("index_skip_topk_offset", 0, kMaxLayers, 2);
    for (int i = 0; i < layers; ++i)
      types.push_back(std::max(i - offset + 1, 0) % every == 0 ? "full" : "shared");
  }
  if (static_cast<int>(types.size()) != layers || types[0] != "full")
    fail(ErrorKind::bad_checkpoint, "{}: indexer_types: expected {} entries, \"full\" first, found {}",
         c.where(), layers, types.size());
  std::vector<bool> own;
  for (const auto& type : types) {
    if (type != "full" && type != "shared")
      fail(ErrorKind::bad_checkpoint, "{}: indexer_types: expected full or shared, found \"{}\"", c.where(),
           type);
    own.push_back(type == "full");
  }
  return own;
}

constexpr LatentMoeDefaults kDefaults{.eps = 1e-5f, .groups = 1, .kept_groups = 1, .dense_layers = 3};

TokenIndexerOptions indexer_of(const Config& c) {
  const auto rope = Rope::from(c, mla_dims(c), {.interleaved = c.get("indexer_rope_interleave", true)});
  return TokenIndexerOptions::from(c, 32, rope);
}

Decoder build(const Config& c, const Weights& w) {
  const auto indexer = indexer_of(c);
  const auto own = choosing(c, mla_dims(c).layers);
  const auto shared = std::make_shared<KeyChoice>();
  return latent_moe_decoder(c, w, kDefaults, [&](int i, const Weights& attention, const MlaOptions& mla) {
    return SparseMla(attention, mla, indexer, shared, own[static_cast<size_t>(i)]);
  });
}

/// The layer that predicts further chooses its own keys.
LatentMixer mtp_mixer(const Config& c) {
  return [indexer = indexer_of(c)](int, const Weights& attention, const MlaOptions& mla) {
    return SparseMla(attention, mla, indexer, std::make_shared<KeyChoice>(), true);
  };
}

}  // namespace

Arch arch_glm_moe_dsa() {
  return {
      .model_types = {"glm_moe_dsa"},
      .gguf = {"glm-dsa"},
      .reference = "transformers GlmMoeDsaForCausalLM",
      .build = build,
      .weights = [](const Config& c, const Source&) { return latent_moe_rules(c); },
      .mtp = latent_mtp(kDefaults, mtp_mixer),
      .tiny = R"({"model_type": "glm_moe_dsa", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 192,
              "num_hidden_layers": 3, "num_attention_heads": 6, "q_lora_rank": 64, "kv_lora_rank": 64,
              "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 128, "hidden_act": "silu",
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "mlp_layer_types": ["dense", "sparse", "sparse"], "n_routed_experts": 8, "n_shared_experts": 2,
              "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1,
              "norm_topk_prob": true, "routed_scaling_factor": 1.8, "index_n_heads": 10, "index_head_dim": 64,
              "index_topk": 6, "indexer_types": ["full", "shared", "full"], "num_nextn_predict_layers": 1,
              "tie_word_embeddings": false})"};
}

}  // namespace mlxcel
