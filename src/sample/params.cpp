#include "sample/params.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace mlxcel {
namespace {

constexpr double kMaxEdit = 100.0;
constexpr size_t kMaxBreakers = 64;
constexpr size_t kMaxBreakerBytes = 64;

struct StageName {
  Stage stage;
  const char* name;
  char letter;
};
constexpr StageName kStages[] = {
    {Stage::penalties, "penalties", 'e'},
    {Stage::dry, "dry", 'd'},
    {Stage::top_n_sigma, "top_n_sigma", 's'},
    {Stage::top_k, "top_k", 'k'},
    {Stage::typ_p, "typ_p", 'y'},
    {Stage::top_p, "top_p", 'p'},
    {Stage::min_p, "min_p", 'm'},
    {Stage::xtc, "xtc", 'x'},
    {Stage::temperature, "temperature", 't'},
    {Stage::adaptive_p, "adaptive_p", 'a'},
};

void add_stage(std::vector<Stage>& stages, const StageName* end, const StageName* found,
               const std::string& word, const std::string& param) {
  if (found == end)
    fail_param(param,
               "{}: unknown sampler \"{}\"; known are penalties (e), dry (d), top_n_sigma (s), top_k (k), "
               "typ_p (y), "
               "top_p (p), min_p (m), xtc (x), temperature (t), adaptive_p (a)",
               param, word.substr(0, 64));
  if (std::find(stages.begin(), stages.end(), found->stage) != stages.end())
    fail_param(param, "{}: sampler \"{}\" is named twice", param, found->name);
  stages.push_back(found->stage);
}

void check_range(const char* name, double value, double low, double high) {
  if (!(value >= low && value <= high))
    fail_param(name, "{}: expected a number from {} to {}, found {}", name, low, high, value);
}

void check_window(const char* name, int value) {
  if (value < -1) fail_param(name, "{}: expected -1 (whole context) or more, found {}", name, value);
}

void validate_filters(const SamplingParams& p) {
  constexpr double kFloatMax = std::numeric_limits<float>::max();
  check_range("temperature", p.temperature, 0.0, kFloatMax);
  check_range("dynatemp_range", p.dynatemp_range, 0.0, kFloatMax);
  check_range("dynatemp_exponent", p.dynatemp_exponent, 0.0, kFloatMax);
  if (p.top_k < 0) fail_param("top_k", "top_k: expected 0 (off) or more, found {}", p.top_k);
  check_range("top_p", p.top_p, 0.0, 1.0);
  check_range("min_p", p.min_p, 0.0, 1.0);
  check_range("typical_p", p.typical_p, 0.0, 1.0);
  check_range("top_n_sigma", p.top_n_sigma, -kFloatMax, kFloatMax);
  check_range("xtc_probability", p.xtc_probability, 0.0, 1.0);
  check_range("xtc_threshold", p.xtc_threshold, 0.0, 1.0);
  if (p.mirostat < 0 || p.mirostat > 2)
    fail_param("mirostat", "mirostat: expected 0 (off), 1 or 2, found {}", p.mirostat);
  check_range("mirostat_tau", p.mirostat_tau, 0.0, 1000.0);
  check_range("mirostat_eta", p.mirostat_eta, 0.0, 1000.0);
  check_range("adaptive_target", p.adaptive_target, -kFloatMax, 1.0);
  check_range("adaptive_decay", p.adaptive_decay, 0.0, 0.99f);
  if (p.min_keep < 0) fail_param("min_keep", "min_keep: expected 0 or more, found {}", p.min_keep);
}

void validate_penalties(const SamplingParams& p) {
  check_range("repeat_penalty", p.repeat_penalty, 0.01f, kMaxEdit);
  check_range("frequency_penalty", p.frequency_penalty, -kMaxEdit, kMaxEdit);
  check_range("presence_penalty", p.presence_penalty, -kMaxEdit, kMaxEdit);
  check_window("repeat_last_n", p.repeat_last_n);
  check_range("dry_multiplier", p.dry_multiplier, 0.0, kMaxEdit);
  check_range("dry_base", p.dry_base, 1.0, kMaxEdit);
  if (p.dry_allowed_length < 0)
    fail_param("dry_allowed_length", "dry_allowed_length: expected 0 or more, found {}",
               p.dry_allowed_length);
  check_window("dry_penalty_last_n", p.dry_penalty_last_n);
  if (p.dry_breakers.size() > kMaxBreakers)
    fail_param("dry_sequence_breakers", "dry_sequence_breakers: at most {} strings, found {}", kMaxBreakers,
               p.dry_breakers.size());
  for (const auto& breaker : p.dry_breakers)
    if (breaker.empty() || breaker.size() > kMaxBreakerBytes)
      fail_param("dry_sequence_breakers",
                 "dry_sequence_breakers: expected strings of 1 to {} bytes, found {}", kMaxBreakerBytes,
                 breaker.size());
}

void validate_biases(const SamplingParams& p, int vocab_size) {
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || token >= vocab_size)
      fail_param("logit_bias", "logit_bias: key {} is outside the vocabulary of {} tokens", token,
                 vocab_size);
    if (!(bias >= -kMaxEdit && bias <= kMaxEdit))
      fail_param("logit_bias", "logit_bias: key {}: expected a value from -100 to 100, found {}", token,
                 bias);
  }
  std::vector<int32_t> banned = p.banned;
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  for (int32_t token : banned)
    if (token < 0 || token >= vocab_size)
      fail_param("banned", "banned: token {} is outside the vocabulary of {} tokens", token, vocab_size);
  if (static_cast<int>(banned.size()) >= vocab_size)
    fail_param("banned", "banned: all {} tokens of the vocabulary are banned", vocab_size);
  if (p.language_bias)
    for (const auto& [token, bias] : *p.language_bias)
      if (token < 0 || token >= vocab_size || !(bias < std::numeric_limits<float>::infinity()) ||
          std::isnan(bias))
        fail_param("lang-bias", "lang-bias: token {} of {} gets {}: expected a finite value or -inf", token,
                   vocab_size, bias);
}

}  // namespace

const std::vector<Stage>& default_stages() {
  static const std::vector<Stage> stages = {Stage::penalties, Stage::dry,   Stage::top_n_sigma,
                                            Stage::top_k,     Stage::typ_p, Stage::top_p,
                                            Stage::min_p,     Stage::xtc,   Stage::temperature};
  return stages;
}

const char* to_string(Stage stage) {
  for (const auto& entry : kStages)
    if (entry.stage == stage) return entry.name;
  return "";
}

std::vector<Stage> parse_stages(std::span<const std::string> names, const std::string& param) {
  std::vector<Stage> stages;
  for (const std::string& name : names) {
    const auto* found = std::find_if(std::begin(kStages), std::end(kStages),
                                     [&](const StageName& s) { return name == s.name; });
    add_stage(stages, std::end(kStages), found, name, param);
  }
  return stages;
}

std::vector<Stage> parse_stage_letters(std::string_view letters, const std::string& param) {
  std::vector<Stage> stages;
  for (char letter : letters) {
    const auto* found = std::find_if(std::begin(kStages), std::end(kStages),
                                     [&](const StageName& s) { return letter == s.letter; });
    add_stage(stages, std::end(kStages), found, std::string(1, letter), param);
  }
  return stages;
}

void validate(const SamplingParams& p, int vocab_size) {
  validate_filters(p);
  validate_penalties(p);
  validate_biases(p, vocab_size);
  for (size_t i = 0; i < p.samplers.size(); ++i)
    if (std::find(p.samplers.begin(), p.samplers.begin() + static_cast<std::ptrdiff_t>(i), p.samplers[i]) !=
        p.samplers.begin() + static_cast<std::ptrdiff_t>(i))
      fail_param("samplers", "samplers: sampler \"{}\" is named twice", to_string(p.samplers[i]));
  if (p.logprobs < -1 || p.logprobs > vocab_size)
    fail_param("logprobs", "logprobs: expected -1 (none) to {}, found {}", vocab_size, p.logprobs);
}

}  // namespace mlxcel
