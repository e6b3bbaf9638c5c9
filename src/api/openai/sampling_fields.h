// What chat and completions share: how to draw, when to stop, how much to say about it.
// Absent fields stay absent: the server's defaults fill them (features.md 17, server.md 2.6).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/json_node.h"
#include "engine/denoising.h"
#include "sample/params.h"

namespace mlxcel::openai {

/// What a request is checked against.
struct Bounds {
  int vocab_size = 0;
  int max_choices = 128;  // n, and no more than can ever run
};

struct SamplingFields {
  std::optional<float> temperature, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
  std::optional<float> typical_p, top_n_sigma, xtc_probability, xtc_threshold, dry_multiplier, dry_base;
  std::optional<float> dynatemp_range, dynatemp_exponent, mirostat_tau, mirostat_eta, adaptive_target,
      adaptive_decay;
  std::optional<int> top_k, repeat_last_n, min_keep, dry_allowed_length, dry_penalty_last_n, mirostat;
  std::optional<std::vector<std::string>> dry_breakers;
  std::vector<std::vector<int32_t>> dry_breaker_ids;  // more of them, as tokens
  std::optional<std::vector<Stage>> samplers;
  std::optional<int> max_pattern, min_pattern, min_count;  // loop detection; 0: off
  bool post_sampling_probs = false;
  std::optional<std::vector<std::pair<int, float>>> adapters;  // id, scale; the others get 0
  bool cache_prompt = true;                                    // reuse kept prefixes and keep this one
  std::string cache_key;         // prefixes are shared by requests with the same
  std::optional<uint32_t> seed;  // folded to 32 bits; absent also for -1 and 4294967295 (fresh)
  bool seed_given = false;       // true also for an explicit "fresh one, please"
  std::map<int32_t, float> logit_bias;
  std::optional<bool> ignore_eos;
  std::vector<std::string> stop;
  std::optional<int> slot;           // waits for this one; -1: any
  std::optional<int> keep, discard;  // tokens that stay, and that go, where a full window shifts
  Denoising denoising;               // of text diffusion
  bool return_progress = false;      // frames while the prompt is evaluated; of a stream
};

SamplingFields parse_sampling(const JsonNode& body, const Bounds& bounds);
/// The stages beyond the usual ones, their order, loop detection and the prompt cache; native and OpenAI's
/// alike.
void parse_chain(const JsonNode& body, SamplingFields& out);
/// `lora`: ids with their scales; nothing where it is absent.
std::optional<std::vector<std::pair<int, float>>> parse_adapters(const JsonNode& body);
/// The same of a list itself.
std::vector<std::pair<int, float>> parse_adapter_list(const JsonNode& list);
/// A string or a list of at most 16; the empty string is refused.
std::vector<std::string> parse_stop(const JsonNode& body);
/// Folds a seed to 32 bits; nothing for "a fresh one".
std::optional<uint32_t> fold_seed(int64_t seed);

struct StreamFields {
  bool stream = false;
  bool include_usage = false;
};
StreamFields parse_stream(const JsonNode& body);

/// Refuses what changes the answer but cannot be honoured yet, by name; values that mean "off" pass.
void refuse_unsupported(const JsonNode& body);

/// Accepted without effect: user, metadata, store and their like. `metadata` is bounded and echoed.
struct EchoedFields {
  std::string metadata_json;  // empty: absent
  std::string service_tier;
};
EchoedFields parse_inert(const JsonNode& body);

}  // namespace mlxcel::openai
