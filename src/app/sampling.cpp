#include "app/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include "api/openai/sampling_fields.h"
#include "app/command_words.h"
#include "app/options.h"
#include "base/error.h"

namespace mlxcel::app {
namespace {

constexpr size_t kMostGrammar = size_t{1} << 20;

// Where the server's help names a default of its own, ours stands here.
constexpr std::array kRows = std::to_array<SharedFlag>({
    {"--temp", "0: greedy (default: the checkpoint's, else 0)"},
    {"--top-k", "keep the k likeliest tokens; 0: off (default: the checkpoint's, else 0)"},
    {"--top-p",
     "keep the likeliest tokens up to this probability; 1: off (default: the checkpoint's, else 1)"},
    {"--min-p", "drop tokens below this share of the best one; 0: off (0)"},
    {"--typical"},
    {"--top-nsigma"},
    {"--xtc-probability"},
    {"--xtc-threshold"},
    {"--repeat-penalty", "divide the logits of recent tokens; 1: off (1)"},
    {"--frequency-penalty", "subtract per earlier use; 0: off (0)"},
    {"--presence-penalty", "subtract once for any earlier use; 0: off (0)"},
    {"--repeat-last-n"},
    {"--dry-multiplier", "penalty on repeating sequences; 0: off (0)"},
    {"--dry-base", "growth of that penalty per repeated token (1.75)"},
    {"--dry-allowed-length"},
    {"--dry-penalty-last-n"},
    {"--dry-sequence-breaker"},
    {"--dynatemp-range"},
    {"--dynatemp-exp", "how the temperature follows the flatness of the distribution (1)"},
    {"--mirostat"},
    {"--mirostat-lr"},
    {"--mirostat-ent"},
    {"--adaptive-target"},
    {"--adaptive-decay", "how fast adaptive_p forgets (0.9)"},
    {"--samplers"},
    {"--sampler-seq"},
    {"--logit-bias"},
    {"--lang-bias"},
    {"--lang-bias-config"},
    {"--ignore-eos"},
    {"--seed", "seed of the draws; -1 (default): random"},
});

template <class T, class U>
void take(T& into, const std::optional<U>& flag) {
  if (flag) into = *flag;
}

std::string flag_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

}  // namespace

void add_sampling_flags(SharedFlags& flags) {
  for (const SharedFlag& row : kRows) flags.add("Sampling", {row});
}

bool set_sampling(FlagState& state, const std::string& key, const std::string& value) {
  const Flag* row = find_flag(flag_name(key));
  const bool ours = row && row->kind != Flag::Kind::toggle &&
                    std::string_view(row->names).find("lang-bias") == std::string_view::npos &&
                    std::any_of(kRows.begin(), kRows.end(),
                                [&](const SharedFlag& known) { return find_flag(known.name) == row; });
  if (!ours) return false;
  Flag named = *row;  // its errors say the name that was typed
  named.names = key;
  row->apply(state, named, value);
  return true;
}

SamplingParams sampling_params(const FlagState& state, const Config& generation_config) {
  const SamplingFlags& flags = state.serve.service.sampling;
  SamplingParams params;
  // Without `do_sample` a generation_config means greedy, whatever temperature stands beside it.
  if (generation_config.get<bool>("do_sample", false)) {
    params.temperature = generation_config.get<float>("temperature", 1.0f);
    params.top_k = generation_config.integer("top_k", 0, 1 << 30, 50);
    params.top_p = generation_config.get<float>("top_p", 1.0f);
    params.min_p = generation_config.get<float>("min_p", 0.0f);
  }
  if (generation_config.has("repetition_penalty"))
    params.repeat_penalty = generation_config.get<float>("repetition_penalty");
  take(params.temperature, flags.temperature);
  take(params.top_k, flags.top_k);
  take(params.top_p, flags.top_p);
  take(params.min_p, flags.min_p);
  take(params.typical_p, flags.typical_p);
  take(params.top_n_sigma, flags.top_n_sigma);
  take(params.xtc_probability, flags.xtc_probability);
  take(params.xtc_threshold, flags.xtc_threshold);
  take(params.repeat_penalty, flags.repeat_penalty);
  take(params.frequency_penalty, flags.frequency_penalty);
  take(params.presence_penalty, flags.presence_penalty);
  take(params.repeat_last_n, flags.repeat_last_n);
  take(params.dry_multiplier, flags.dry_multiplier);
  take(params.dry_base, flags.dry_base);
  take(params.dry_allowed_length, flags.dry_allowed_length);
  take(params.dry_penalty_last_n, flags.dry_penalty_last_n);
  take(params.dry_breakers, flags.dry_breakers);
  take(params.dynatemp_range, flags.dynatemp_range);
  take(params.dynatemp_exponent, flags.dynatemp_exponent);
  take(params.mirostat, flags.mirostat);
  take(params.mirostat_eta, flags.mirostat_eta);
  take(params.mirostat_tau, flags.mirostat_tau);
  take(params.adaptive_target, flags.adaptive_target);
  take(params.adaptive_decay, flags.adaptive_decay);
  take(params.samplers, flags.samplers);
  params.logit_bias = flags.logit_bias;
  params.banned = flags.banned;
  if (state.seed) params.seed = openai::fold_seed(*state.seed);
  return params;
}

void check_sampling(const SamplingParams& params, int vocab_size) {
  // Where a flag is not called as the request's field is.
  static constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"temperature", "--temp"},          {"typical_p", "--typical"},
      {"top_n_sigma", "--top-nsigma"},    {"dynatemp_exponent", "--dynatemp-exp"},
      {"mirostat_tau", "--mirostat-ent"}, {"mirostat_eta", "--mirostat-lr"},
      {"banned", "--logit-bias"},         {"dry_sequence_breakers", "--dry-sequence-breaker"}};
  try {
    validate(params, vocab_size);
  } catch (const Error& error) {
    const std::string& field = error.param();
    const auto* known = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const auto& entry) { return entry.first == field; });
    const std::string flag = as_typed(known != std::end(kNames) ? known->second : flag_name(field));
    std::string text = error.what();
    if (text.starts_with(field + ":")) text.replace(0, field.size(), flag);
    throw Error(error.kind(), text, flag);
  }
}

SamplingParams checked_sampling(const FlagState& state, const Config& generation_config, int vocab_size) {
  check_sampling(sampling_params(state, Config::parse("{}", "flags")), vocab_size);
  SamplingParams params = sampling_params(state, generation_config);
  try {
    validate(params, vocab_size);
  } catch (const Error& error) {
    fail(ErrorKind::bad_checkpoint, "generation_config.json: {}", error.what());
  }
  return params;
}

void add_grammar_flags(CLI::App& app, GrammarFlags& flags) {
  const char* group = "What the answer must look like";
  app.add_option("--grammar", flags.grammar, "a grammar (GBNF)")->type_name("GBNF")->group(group);
  app.add_option("--grammar-file", flags.grammar_file, "the same from a file")
      ->type_name("FILE")
      ->group(group);
  app.add_option("-j,--json-schema", flags.json_schema, "a JSON schema; {} for any value")
      ->type_name("JSON")
      ->group(group);
  app.add_option("--json-schema-file", flags.json_schema_file, "the same from a file (also -jf)")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--regex", flags.regex, "a regular expression, for the whole answer")
      ->type_name("PATTERN")
      ->group(group);
}

std::optional<Constraint> constraint_of(const GrammarFlags& flags) {
  std::optional<Constraint> out;
  const auto set = [&](const std::string& text, Constraint::Kind kind, const char* flag) {
    if (text.empty()) return;
    if (out) throw UsageError(fmt::format("{} and {}: give one of them", out->param, flag));
    out.emplace();
    out->kind = kind;
    out->text = text;
    out->param = flag;
  };
  const auto file = [&](const std::string& path, Constraint::Kind kind, const char* flag) {
    if (!path.empty()) set(text_file(path, flag, kMostGrammar), kind, flag);
  };
  set(flags.grammar, Constraint::Kind::gbnf, "--grammar");
  file(flags.grammar_file, Constraint::Kind::gbnf, "--grammar-file");
  set(flags.json_schema, Constraint::Kind::json_schema, "--json-schema");
  file(flags.json_schema_file, Constraint::Kind::json_schema, "--json-schema-file");
  set(flags.regex, Constraint::Kind::regex, "--regex");
  return out;
}

}  // namespace mlxcel::app
