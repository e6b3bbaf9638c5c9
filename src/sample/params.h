// What a request says about drawing tokens: the chain's stages, their order and their numbers.
// Owner: values. Thread: any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlxcel {

/// Stages of the chain that a request may order. Bias and grammar mask come before them, the draw after.
enum class Stage : uint8_t {
  penalties,
  dry,
  top_n_sigma,
  top_k,
  typ_p,
  top_p,
  min_p,
  xtc,
  temperature,
  adaptive_p
};

/// penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature.
const std::vector<Stage>& default_stages();
const char* to_string(Stage stage);
/// The names that fields use ("typ_p"); invalid_request with `param` for unknown and repeated ones.
std::vector<Stage> parse_stages(std::span<const std::string> names, const std::string& param = "samplers");
/// The letters `e d s k y p m x t a`, as the flag has them.
std::vector<Stage> parse_stage_letters(std::string_view letters, const std::string& param = "sampling-seq");

using TokenBiases = std::vector<std::pair<int32_t, float>>;
/// The bytes each token stands for, by id; empty for special ones.
using TokenBytes = std::vector<std::string>;

struct SamplingParams {
  std::vector<Stage> samplers = default_stages();
  float temperature = 0.0f;     // 0: greedy, ties to the lowest id
  float dynatemp_range = 0.0f;  // temperature +- range, by how flat the distribution is
  float dynatemp_exponent = 1.0f;
  int top_k = 0;       // 0: off; 1: greedy
  float top_p = 1.0f;  // 0 keeps one token
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float top_n_sigma = 0.0f;  // 0 or less: off
  float xtc_probability = 0.0f;
  float xtc_threshold = 0.1f;  // above 0.5: off
  float repeat_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  int repeat_last_n = 64;       // -1: whole context
  float dry_multiplier = 0.0f;  // 0: off
  float dry_base = 1.75f;
  int dry_allowed_length = 2;
  int dry_penalty_last_n = 64;  // -1: whole context
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};
  int mirostat = 0;  // 1, 2: replaces the chain after penalties
  float mirostat_tau = 5.0f;
  float mirostat_eta = 0.1f;
  float adaptive_target = -1.0f;  // below 0: off; acts only when `samplers` names it
  float adaptive_decay = 0.9f;
  int min_keep = 1;
  std::map<int32_t, float> logit_bias;
  std::vector<int32_t> banned;                       // ignore_eos
  std::shared_ptr<const TokenBiases> language_bias;  // finite or -inf; never the reason that nothing is left
  std::optional<uint32_t> seed;                      // absent: fresh from the operating system
  int logprobs = -1;                                 // -1: none; k: the k best beside the chosen one
  bool post_sampling_probs = false;  // logprobs of the distribution drawn from instead of the model's
};

/// Throws invalid_request naming the parameter for a value outside its range. Biases are within +-100,
/// penalties within +-100 (repeat_penalty 0.01 to 100): so no sum of edits leaves the floats.
void validate(const SamplingParams& params, int vocab_size);

}  // namespace mlxcel
