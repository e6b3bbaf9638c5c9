#include "nn/pooled_config.h"

#include "base/error.h"
#include "nn/layer_plan.h"

namespace mlxcel {

namespace {

constexpr const char* kWindow = "sliding_attention";
constexpr const char* kChosen = "compressed_sparse_attention";
constexpr const char* kEvery = "heavily_compressed_attention";

int run_of(const Config& c, const std::string& kind) {
  if (kind == kWindow) return 0;
  const bool chosen = kind == kChosen;
  const char* older = chosen ? "compress_rate_csa" : "compress_rate_hca";
  if (c.has(older)) return c.integer(older, 2, 1 << 16);
  return c.child("compress_rates").integer(kind, 2, 1 << 16, chosen ? 4 : 128);
}

/// Those of pooled layers ("compress") are scaled; their yarn leaves the values as long as they are.
Rope rope(const Config& c, const Dims& d, int rotated, bool pooled) {
  const float part = static_cast<float>(rotated) / static_cast<float>(d.head_dim);
  const Config blocks = c.child("rope_parameters");
  for (const Config& block :
       {blocks, blocks.child("main"), blocks.child("compress"), c.child("rope_scaling")})
    if (factor(block, "attention_factor") != 1.0f)
      fail(ErrorKind::unsupported, "{}: attention_factor {}: expected 1", block.where(),
           factor(block, "attention_factor"));
  if (!blocks.child("main").empty())
    return Rope::from(c, d, {.part = part, .interleaved = true, .layer_type = pooled ? "compress" : "main"});
  if (!pooled) {
    const float theta = factor(c, "rope_theta", 10000.0f);
    if (theta <= 1.0f)
      fail(ErrorKind::bad_checkpoint, "{}: rope_theta: expected more than 1, found {}", c.where(), theta);
    return Rope::plain(rotated, theta, true);
  }
  return Rope::from(
      c, d, {.theta = 160000.0f, .part = part, .interleaved = true, .theta_key = "compress_rope_theta"});
}

}  // namespace

std::vector<std::string> pooled_kinds(const Config& c, int layers) {
  auto listed = listed_kinds(c, "layer_types", layers, {kWindow, kChosen, kEvery});
  if (!listed.empty()) return listed;
  const auto ratios = c.get("compress_ratios", std::vector<int>{});
  if (!ratios.empty() && static_cast<int>(ratios.size()) < layers)
    fail(ErrorKind::bad_checkpoint, "{}: compress_ratios: expected {} entries, found {}", c.where(), layers,
         ratios.size());
  for (int i = 0; i < layers; ++i) {
    const int ratio = ratios.empty() ? (i < 2 || i % 2 == 0 ? 128 : 4) : ratios[static_cast<size_t>(i)];
    if (ratio != 0 && ratio != 4 && ratio != 128)
      fail(ErrorKind::unsupported, "{}: compress_ratios: expected 0, 4 or 128, found {}", c.where(), ratio);
    listed.emplace_back(ratio == 0 ? kWindow : ratio == 4 ? kChosen : kEvery);
  }
  return listed;
}

PooledOptions pooled_options(const Config& c, const Dims& d, const std::string& kind, float eps) {
  const int rotated =
      c.integer("qk_rope_head_dim", 2, d.head_dim,
                static_cast<int>(static_cast<float>(d.head_dim) * c.get("partial_rotary_factor", 0.125f)));
  PooledOptions o{.hidden = d.hidden,
                  .heads = d.heads,
                  .head_dim = d.head_dim,
                  .q_rank = c.integer("q_lora_rank", 1, kMaxWidth, 1024),
                  .window = c.integer("sliding_window", 1, kMaxPositions, 128),
                  .groups = c.integer("o_groups", 1, d.heads, 8),
                  .rank = c.integer("o_lora_rank", 1, kMaxWidth, 1024),
                  .eps = eps,
                  .rope = rope(c, d, rotated, kind != kWindow),
                  .run = run_of(c, kind)};
  if (rotated % 2 != 0)
    fail(ErrorKind::bad_checkpoint, "{}: qk_rope_head_dim {}: expected an even number", c.where(), rotated);
  if (d.heads % o.groups != 0)
    fail(ErrorKind::bad_checkpoint, "{}: num_attention_heads {}: expected a multiple of o_groups {}",
         c.where(), d.heads, o.groups);
  if (kind != kChosen) return o;
  o.chosen = PoolIndexer{.heads = c.integer("index_n_heads", 1, 4096, 64),
                         .head_dim = c.integer("index_head_dim", 2, 8192, 128),
                         .keep = c.integer("index_topk", 1, kMaxPositions, 512)};
  if (o.chosen->head_dim < rotated)
    fail(ErrorKind::bad_checkpoint,
         "{}: index_head_dim {}: expected at least the {} entries that are rotated", c.where(),
         o.chosen->head_dim, rotated);
  return o;
}

}  // namespace mlxcel
