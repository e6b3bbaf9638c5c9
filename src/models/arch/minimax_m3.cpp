// MiniMax-M3's text side: in sparse layers small heads choose blocks of keys for their share of the kv heads;
// norms stored around zero, clamped gates, sigmoid experts beside a shared one. Reference: transformers
// MiniMaxM3SparseForConditionalGeneration.
#include <fmt/format.h>

#include <utility>

#include "models/kit.h"
#include "nn/indexer.h"

namespace mlxcel {

namespace {

ClampedGlu gate(const Config& c) {
  return {
      .limit = factor(c, "swiglu_limit", 7.0f), .alpha = factor(c, "swiglu_alpha", 1.702f), .offset = 1.0f};
}

MoeOptions experts(const Config& c) {
  MoeOptions moe;
  moe.experts = c.integer("num_local_experts", 1, 4096, 128);
  moe.per_token = c.integer("num_experts_per_tok", 1, moe.experts, 4);
  moe.width = c.integer("intermediate_size", 1, kMaxWidth, 3072);
  moe.scoring = Scoring::sigmoid;
  moe.correction = "e_score_correction_bias";
  moe.renormalize = true;
  moe.scale = c.get("routed_scaling_factor", 2.0f);
  moe.clamp = gate(c);
  moe.bank = "switch_mlp";
  moe.shared = {.width = c.integer("shared_intermediate_size", 1, kMaxWidth, 3072), .clamp = gate(c)};
  return moe;
}

/// One flag a layer: a list of names, or (older) of zeros and ones, or the same for all.
std::vector<bool> flags(const Config& c, const char* names, const char* yes, const Config& older,
                        const char* numbers, int layers, bool otherwise) {
  std::vector<bool> result;
  if (c.has(names)) {
    for (const auto& name : c.get<std::vector<std::string>>(names)) {
      if (name != yes && name != "full_attention" && name != "dense")
        fail(ErrorKind::bad_checkpoint, "{}: {}: \"{}\" is not known", c.where(), names, name);
      result.push_back(name == yes);
    }
  } else if (older.has(numbers)) {
    for (const int flag : older.get<std::vector<int>>(numbers)) result.push_back(flag != 0);
  } else {
    result.assign(static_cast<size_t>(layers), otherwise);
  }
  if (static_cast<int>(result.size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected {} entries, found {}", c.where(), names, layers,
         result.size());
  return result;
}

BlockIndexerOptions indexer(const Config& c, const Config& older, const Dims& d, const Rope& rope) {
  const auto number = [&](const char* key, const char* old, int low, int fallback) {
    return older.has(old) ? older.integer(old, low, kMaxPositions)
                          : c.integer(key, low, kMaxPositions, fallback);
  };
  const BlockIndexerOptions o{.heads = number("index_n_heads", "sparse_num_index_heads", 1, 4),
                              .head_dim = number("index_head_dim", "sparse_index_dim", 1, 128),
                              .block = number("index_block_size", "sparse_block_size", 1, 128),
                              .keep = number("index_topk_blocks", "sparse_topk_blocks", 1, 16),
                              .local = number("index_local_blocks", "sparse_local_block", 0, 1)};
  if (d.kv_heads % o.heads != 0 || o.head_dim > 4096 || o.local > o.keep ||
      o.head_dim < 2 * static_cast<int>(rope.frequencies().size()))
    fail(ErrorKind::bad_checkpoint,
         "{}: {} index heads of {} for {} kv heads, {} of {} blocks local: the numbers do not fit together",
         c.where(), o.heads, o.head_dim, d.kv_heads, o.local, o.keep);
  return o;
}

Decoder build(const Config& outer, const Weights& w) {
  const Config c = text_config(outer);
  const Config older = c.child("sparse_attention_config");
  const auto d = Dims::from(c, {.kv_heads = 4, .head_dim = 128});
  const float eps = epsilon(c, "rms_norm_eps", 1e-6f);
  const auto norm = rms_norms(d.hidden, eps, 1.0f);
  const auto moe = experts(c);
  const int width = c.integer("dense_intermediate_size", 1, kMaxWidth, 12288);
  const float part = static_cast<float>(c.integer("rotary_dim", 2, d.head_dim, d.head_dim / 2)) /
                     static_cast<float>(d.head_dim);
  const auto rope = Rope::from(c, d, {.theta = 5000000.0f, .part = part});
  const auto chooses =
      flags(c, "layer_types", "minimax_m3_sparse", older, "sparse_attention_freq", d.layers, false);
  const auto sparse = flags(c, "mlp_layer_types", "sparse", c, "moe_layer_freq", d.layers, true);
  const auto ffn = [&](size_t i, const Weights& layer) {
    if (sparse[i]) return Ffn(SparseMoe(layer / "block_sparse_moe", d.hidden, moe));
    return Ffn(GatedMlp(layer / "mlp", d.hidden, width, Activation::silu, Bias::none, {}, gate(c)));
  };
  return standard_decoder(w, d, norm, {.tie = tied(c, false)}, [&](int layer_number, const Weights& layer) {
    const auto i = static_cast<size_t>(layer_number);
    std::optional<BlockIndexerOptions> index;
    if (chooses[i]) index = indexer(c, older, d, rope);
    return PreNorm{.mixer_norm = norm(layer, "input_layernorm"),
                   .mixer = BlockAttention(layer / "self_attn", d, eps, rope, index),
                   .ffn_norm = norm(layer, "post_attention_layernorm"),
                   .ffn = ffn(i, layer)};
  });
}

std::vector<Rule> rules(const Config&, const Source&) {
  auto list = std::vector<Rule>{drop("patch_merge_mlp.*")} + text_side_rules();
  // As transformers saves them, and dense layers that stand with the sparse ones.
  const std::pair<const char*, const char*> names[] = {
      {"*.self_attn.indexer.*", "*.self_attn.index_*"},
      {"*.mlp.gate.e_score_correction_bias", "*.block_sparse_moe.e_score_correction_bias"},
      {"*.mlp.gate.weight", "*.block_sparse_moe.gate.weight"},
      {"*.mlp.shared_experts.*", "*.block_sparse_moe.shared_experts.*"},
      {"*.mlp.experts.gate_up_proj", "*.block_sparse_moe.switch_mlp.gate_up_proj.weight"},
      {"*.mlp.experts.down_proj", "*.block_sparse_moe.switch_mlp.down_proj.weight"},
      {"*.block_sparse_moe.gate_proj.*", "*.mlp.gate_proj.*"},
      {"*.block_sparse_moe.up_proj.*", "*.mlp.up_proj.*"},
      {"*.block_sparse_moe.down_proj.*", "*.mlp.down_proj.*"}};
  for (const auto& [from, to] : names) list.push_back(rename(from, to));
  const std::pair<const char*, const char*> matrices[] = {
      {"w1", "gate_proj"}, {"w2", "down_proj"}, {"w3", "up_proj"}};
  for (const auto& [number, name] : matrices)
    list.push_back(stack(fmt::format("*.experts.#.{}.*", number), fmt::format("*.switch_mlp.{}.*", name)));
  list.push_back(split_axis(-2, "*.gate_up_proj.weight", {"*.gate_proj.weight", "*.up_proj.weight"}));
  return list;
}

}  // namespace

Arch arch_minimax_m3() {
  return {.model_types = {"minimax_m3_vl", "minimax_m3"},
          .gguf = {"minimax-m3"},
          .reference = "transformers MiniMaxM3SparseForConditionalGeneration",
          .build = build,
          .weights = rules,
          .tiny = R"({"model_type": "minimax_m3_vl", "text_config": {"vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 64, "dense_intermediate_size": 128, "shared_intermediate_size": 64,
              "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rotary_dim": 16,
              "num_local_experts": 6, "num_experts_per_tok": 3, "routed_scaling_factor": 2.5, "swiglu_limit": 0.5,
              "swiglu_alpha": 1.5, "layer_types": ["minimax_m3_sparse", "full_attention", "minimax_m3_sparse"],
              "mlp_layer_types": ["dense", "sparse", "sparse"], "index_n_heads": 2, "index_head_dim": 64,
              "index_block_size": 4, "index_topk_blocks": 3, "index_local_blocks": 1,
              "tie_word_embeddings": false}})"};
}

}  // namespace mlxcel
