// Multi-head latent attention: keys and values of every head are projections of one latent per token, so that
// the latent (and one rotated key) is all a row remembers. Queries are moved into the latent's space and meet
// it there, for any number of tokens: one way of computing, whatever the step holds. Values are the first
// entries of the keys and lie in the pages once. Owner: value. Thread: model thread. Shapes: x [tokens,
// hidden] -> [tokens, hidden]. References: DeepSeek-V2 (2024), transformers DeepseekV3Attention.
#pragma once

#include <optional>

#include "nn/attention.h"
#include "nn/dims.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/phases.h"
#include "nn/rope.h"
#include "nn/weights.h"
#include "state/attend.h"
#include "state/step.h"

namespace mlxcel {

struct MlaOptions {
  int hidden = 0;
  int heads = 0;
  int q_rank = 0;  // 0: queries come straight from x
  int kv_rank = 0;
  int plain_dim = 0;  // part of each head that is not rotated
  int rope_dim = 0;   // rotated part, one key for all heads
  int value_dim = 0;
  float eps = 1e-6f;              // of the norms on both latents
  std::optional<Rope> rope = {};  // none: positions are not seen
  float scale = 0.0f;             // of the scores; 0: 1 / sqrt(plain_dim + rope_dim)
  float q_factor = 1.0f;          // of the queries, before their rotation
  float kv_factor = 1.0f;         // of the normed latent
  std::optional<QueryTemperature> temperature = {};
  Bias bias = Bias::as_stored;  // of q_a_proj, kv_a_proj_with_mqa and o_proj

  /// What holds where the config says nothing: rope_interleave, and v_head_dim (0: it must say).
  struct Defaults {
    bool interleaved = true;
    int value_dim = 0;
  };
  /// q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, attention_bias, and the
  /// rotation with its mscale.
  static MlaOptions from(const Config& config, const Dims& dims, const Defaults& defaults);
  static MlaOptions from(const Config& config, const Dims& dims) { return from(config, dims, Defaults()); }
  /// The rotation of `rope_dim` of a head's entries.
  static Rope rotation(const Config& config, const Dims& dims, int head_dim, int rope_dim, bool interleaved);
};

/// The sizes of a config whose heads are described by MLA's own keys.
Dims mla_dims(const Config& config);

/// Reads q_a_proj, q_a_layernorm, q_b_proj (or q_proj), kv_a_proj_with_mqa, kv_a_layernorm, embed_q [heads,
/// kv_rank, plain_dim], unembed_out [heads, value_dim, kv_rank], o_proj; heads_of_kv_b() makes the two of
/// kv_b_proj.
class Mla {
 public:
  Mla(const Weights& w, const MlaOptions& options);
  array operator()(const array& x, Step& step, const Residual& residual = std::nullopt) const;
  bool phases(PhaseList& list) const;

 protected:
  /// Queries [tokens, heads, kv_rank + rope_dim] and the keys they meet [tokens, 1, kv_rank + rope_dim].
  struct Latents {
    array q, k;
    std::optional<array> q_latent;  // normed, [tokens, q_rank]
  };
  Latents latents(const array& x, const Step& step) const;
  /// What the heads see of the latents, [tokens, heads * kv_rank]; `chosen`: of these keys alone, or of all.
  array seen(const Latents& l, Step& step, const KeyChoice* chosen) const;
  /// What the heads saw, [tokens, heads * kv_rank], as their values [tokens, heads * value_dim].
  array values(const array& seen) const;
  /// The same to the output.
  array output(const array& seen, const Residual& residual) const;

  MlaOptions o_;
  Linear down_, q_, embed_, unembed_, out_;  // down_: q_a and kv_a, or kv_a alone
  std::optional<RmsNorm> q_norm_;
  RmsNorm kv_norm_;
  array head_ids_;  // [1, heads]
  int slot_;
  float scale_;
};

}  // namespace mlxcel
