// How one general.architecture of GGUF is spelled as a Hugging Face checkpoint: config keys, tensor names and
// what the converter did to the values. One table per architecture, each in its own file.
// Source of names and of the conversions: llama.cpp (gguf-py constants, convert_hf_to_gguf).
// Thread: any; tables are immutable.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/formats/gguf_file.h"
#include "checkpoint/rules/config_draft.h"
#include "checkpoint/source.h"

namespace mlxcel {

struct GgufKey {
  enum class Kind { integer, number };
  const char* gguf;  // without the architecture's prefix: "attention.head_count"
  const char* hf;    // "num_attention_heads"
  Kind kind = Kind::integer;
  bool required = false;
};

/// What turns the file's values back into the published ones.
enum class GgufChange {
  none,
  unpermute_q,  // rows of adjacent rotary pairs back to halves, num_attention_heads heads
  unpermute_k,  // the same over num_key_value_heads
  minus_one,    // norm weights that hold the +1
  minus_fifth,  // those that hold 1/5, and those that hold 5^-1.5 (PLaMo 2)
  minus_fifth_power,
  log_negated,  // ssm_a = -exp(A_log), [heads, 1] for [heads]
  flatten,      // [heads, 1] for [heads], [groups, width] for [groups * width]
  row,          // [width] for [1, width]
  join,         // [n, rows, width] for [n * rows, width]
  convolution,  // [channels, taps] for [channels, 1, taps]
};

struct GgufName {
  const char* gguf;  // pattern: "blk.#.attn_q.weight"
  const char* hf;    // "model.layers.#.self_attn.q_proj.weight"; "" = read into the config, or derivable
  GgufChange change = GgufChange::none;
};

/// A metadata list with one number for each layer, as tensors of one value.
struct GgufListed {
  const char* key;  // whole: "xielu.alpha_n"
  const char* hf;   // "model.layers.#.mlp.act_fn.alpha_n"
};

struct GgufFacts {
  const GgufContents& file;
  std::string prefix;  // "llama."
  bool has_tensor(std::string_view name) const;
  /// A tensor's slowest axis, if it is there.
  std::optional<int64_t> rows(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  /// One integer from 0 to `high` for each of `layers`: a list of that length, or one number for all;
  /// `missing` where the key is absent.
  std::vector<int64_t> per_layer(std::string_view key, int64_t layers, int64_t high, int64_t missing) const;
  /// One flag for each of `layers`; empty where the key is absent.
  std::vector<bool> flags(std::string_view key, int64_t layers) const;
  /// One number for each of `layers`; empty where the key is absent.
  std::vector<double> numbers(std::string_view key, int64_t layers) const;
};

struct GgufArch {
  const char* name;
  const char* model_type;
  const char* hf_class;
  std::span<const GgufKey> keys;
  std::span<const GgufName> names;
  /// What no table row says: constants, values that depend on others. May be null.
  void (*complete)(const GgufFacts& facts, ConfigDraft& config) = nullptr;
  std::span<const GgufListed> listed = {};
};

/// Every table.
std::span<const GgufArch* const> gguf_archs();
const GgufArch* find_gguf_arch(std::string_view name);
/// Architectures that exist in the format (to tell "not mapped yet" from "unknown").
bool known_to_gguf(std::string_view name);

/// The configuration in the Hugging Face spelling; unsupported for an architecture without a table.
ConfigDraft gguf_config(const GgufContents& file);
/// The file's tensors under Hugging Face names. bad_checkpoint for tensors no table row names.
std::shared_ptr<Source> gguf_source(const GgufContents& file, const ConfigDraft& config);

// Rows that the decoders of the llama kind share (gguf_decoder_rows.cpp), for use in their tables.
std::span<const GgufKey> gguf_decoder_keys();
/// The same without the epsilon of RMS norms.
std::span<const GgufKey> gguf_size_keys();
/// Llama's names as published; with `permuted`, q and k rows were stored for adjacent-pair rotation. A
/// family's own rows come before them and win.
std::vector<GgufName> gguf_llama_names(std::vector<GgufName> own, bool permuted = false);
/// gate, up and down of a gated unit: "blk.#.ffn_gate_exps.*" becomes "<scope>.gate_proj.*", and so on.
/// `kind`:
/// "_exps" for stacked experts, "_shexp" for shared ones, "" for a dense unit.
struct GgufUnitNames {
  const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
};
std::vector<GgufName> gguf_unit(std::string_view kind, std::string_view scope,
                                const GgufUnitNames& names = {});
/// Rows one after another: the first that matches a name wins.
std::vector<GgufName> operator+(std::vector<GgufName> a, std::span<const GgufName> b);
std::vector<GgufKey> operator+(std::vector<GgufKey> a, std::span<const GgufKey> b);
/// The rows of `keys` whose names in the format are not among `left_out` (a family reads them by layer).
std::vector<GgufKey> gguf_keys_without(std::span<const GgufKey> keys,
                                       std::span<const std::string_view> left_out);
/// A number that must be there, under the published key.
void require_gguf_number(const GgufFacts& facts, ConfigDraft& config, const char* gguf, const char* hf);
/// layer_types from attention.sliding_window_pattern, a list of flags where the file has it, else every
/// `period`-th layer is full.
void set_gguf_layer_types(const GgufFacts& facts, ConfigDraft& config, int period);
/// A list of `wanted` positive divisors of rotary frequencies.
std::vector<double> gguf_divisors(const GgufFacts& facts, const std::string& name, int64_t wanted);
/// rope.scaling.* keys as `rope_scaling`; empty where there is none.
ConfigDraft gguf_rope_scaling(const GgufFacts& facts, int64_t max_positions);
/// Takes layers of next-token prediction (the last `nextn_predict_layers` blocks) off num_hidden_layers.
void leave_out_gguf_prediction(const GgufFacts& facts, ConfigDraft& config);
/// mlp_layer_types: sparse are the layers that have a router.
void set_gguf_mlp_types(const GgufFacts& facts, ConfigDraft& config);
/// norm_topk_prob, routed_scaling_factor and the width of experts, which older files leave to the tensors.
void complete_gguf_experts(const GgufFacts& facts, ConfigDraft& config);
/// head_dim, rope_theta, rope_scaling, partial_rotary_factor.
void complete_gguf_rope(const GgufFacts& facts, ConfigDraft& config);

}  // namespace mlxcel
