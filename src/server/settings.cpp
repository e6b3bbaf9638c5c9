#include "server/settings.h"

#include <fmt/format.h>

#include <functional>
#include <initializer_list>
#include <type_traits>

#include "api/error.h"
#include "api/json_node.h"
#include "api/json_writer.h"
#include "api/openai/sampling_fields.h"
#include "server/access.h"

namespace mlxcel {
namespace {

using L = LiveSettings;

struct Row {
  const char* key;
  const char* kind;
  const char* help;
  std::optional<double> low, high;
  std::function<void(const L&, JsonWriter&)> print;
  std::function<void(L&, const JsonNode*)> set;  // null: the value null
};

template <class T, class Owner>
Row maybe(const char* key, const char* help, double low, double high, std::optional<T> Owner::* field) {
  constexpr bool whole = std::is_integral_v<T>;
  return {key,
          whole ? "int_or_null" : "float_or_null",
          help,
          low,
          high,
          [field](const L& live, JsonWriter& out) {
            const auto& value = live.sampling.*field;
            value ? out.value(*value) : out.null();
          },
          [field, low, high](L& live, const JsonNode* node) {
            if (!node)
              live.sampling.*field = std::nullopt;
            else if constexpr (whole)
              live.sampling.*field =
                  static_cast<T>(node->integer(static_cast<int64_t>(low), static_cast<int64_t>(high)));
            else
              live.sampling.*field = static_cast<T>(node->number(low, high));
          }};
}

/// `field` gives the number inside the settings, constant or not.
template <class Field>
Row whole(const char* key, const char* help, int low, int high, Field field) {
  return {key,
          "int",
          help,
          low,
          high,
          [field](const L& live, JsonWriter& out) { out.value(field(live)); },
          [field, low, high, key](L& live, const JsonNode* node) {
            if (!node) fail_param(key, "{}: null is not a value of it", key);
            field(live) = static_cast<int>(node->integer(low, high));
          }};
}

template <class T>
Row of_diffusion(const char* key, const char* help, double low, double high,
                 std::optional<T> Denoising::* field) {
  constexpr bool whole = std::is_integral_v<T>;
  return {key,
          whole ? "int_or_null" : "float_or_null",
          help,
          low,
          high,
          [field](const L& live, JsonWriter& out) {
            const auto& value = live.denoising.*field;
            value ? out.value(*value) : out.null();
          },
          [field, low, high](L& live, const JsonNode* node) {
            auto& value = live.denoising.*field;
            if (!node)
              value = std::nullopt;
            else if constexpr (whole)
              value = static_cast<T>(node->integer(static_cast<int64_t>(low), static_cast<int64_t>(high)));
            else
              value = static_cast<T>(node->number(low, high));
          }};
}

std::string one_of(const char* key, const JsonNode& node, std::initializer_list<const char*> words) {
  const std::string given = node.string();
  std::string list;
  for (const char* word : words) {
    if (given == word) return given;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", word);
  }
  fail_param(key, "{}: expected one of {}, found \"{}\"", key, list, given.substr(0, 64));
}

std::string words_of(const LanguageBias& bias) {
  std::string out;
  for (const auto& [language, value] : bias.languages)
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", language, value);
  return out;
}

/// What the engine and the model's own way of writing are told.
void add_engine_rows(std::vector<Row>& all) {
  all.push_back(
      {"step_token_budget", "int_or_null", "tokens of a step while answers run; null: learned", 1, 1e6,
       [](const L& live, JsonWriter& out) {
         live.step_token_budget > 0 ? out.value(live.step_token_budget) : out.null();
       },
       [](L& live, const JsonNode* node) {
         live.step_token_budget = node ? static_cast<int>(node->integer(live.parallel, 1000000)) : 0;
       }});
  all.push_back(whole("max_concurrent_per_key", "running requests of one API key; 0: any number", 0, 65536,
                      [](auto& live) -> auto& { return live.max_per_key; }));
  all.back().set = [take = all.back().set](L& live, const JsonNode* node) {
    if (!live.keyed) fail_param("max_concurrent_per_key", "max_concurrent_per_key: there are no API keys");
    take(live, node);
  };
  all.push_back({"lang_bias", "str_or_null", "as --lang-bias: ko=-inf,latin=2; null: none", std::nullopt,
                 std::nullopt,
                 [](const L& live, JsonWriter& out) {
                   const std::string words = words_of(live.language_bias);
                   words.empty() ? out.null() : out.value(words);
                 },
                 [](L& live, const JsonNode* node) {
                   LanguageBias bias;
                   if (node && !node->string().empty())
                     bias = parse_language_bias(node->string(), "lang_bias");
                   live.language_bias.languages = std::move(bias.languages);
                 }});
  all.push_back({"lang_bias_policy", "str", "conservative, or strict: pieces of characters too", std::nullopt,
                 std::nullopt,
                 [](const L& live, JsonWriter& out) {
                   out.value(live.language_bias.strict ? "strict" : "conservative");
                 },
                 [](L& live, const JsonNode* node) {
                   const char* key = "lang_bias_policy";
                   if (!node) fail_param(key, "{}: null is not a value of it", key);
                   live.language_bias.strict = one_of(key, *node, {"conservative", "strict"}) == "strict";
                 }});
  using D = Denoising;
  all.push_back(of_diffusion("max_denoising_steps", "most rounds of a block", 1, 4096, &D::steps));
  all.push_back(of_diffusion("diffusion_threshold", "how sure a token is that stays", 0, 1, &D::threshold));
  all.push_back(of_diffusion("diffusion_min_canvas_length", "shortest block", 1, 4096, &D::least));
  all.push_back(of_diffusion("diffusion_max_canvas_length", "longest block", 1, 4096, &D::most));
  all.push_back({"diffusion_sampler", "str_or_null", "entropy-bound, confidence or random", std::nullopt,
                 std::nullopt,
                 [](const L& live, JsonWriter& out) {
                   live.denoising.sampler ? out.value(*live.denoising.sampler) : out.null();
                 },
                 [](L& live, const JsonNode* node) {
                   const char* key = "diffusion_sampler";
                   live.denoising.sampler.reset();
                   if (node)
                     live.denoising.sampler = one_of(key, *node, {"entropy-bound", "confidence", "random"});
                 }});
  all.push_back({"diffusion_full_canvas", "bool", "blocks are always the longest", std::nullopt, std::nullopt,
                 [](const L& live, JsonWriter& out) { out.value(live.denoising.whole); },
                 [](L& live, const JsonNode* node) {
                   const char* key = "diffusion_full_canvas";
                   if (!node) fail_param(key, "{}: null is not a value of it", key);
                   live.denoising.whole = node->boolean();
                 }});
}

const std::vector<Row>& rows() {
  using F = SamplingFlags;
  constexpr double kMost = 1 << 30;
  static const std::vector<Row> all = [] {
    std::vector<Row> list = {
        maybe("default_temperature", "temperature of requests that name none", 0, 100, &F::temperature),
        maybe("default_top_k", "0: off", 0, kMost, &F::top_k),
        maybe("default_top_p", "1: off", 0, 1, &F::top_p),
        maybe("default_min_p", "0: off", 0, 1, &F::min_p),
        maybe("default_typical_p", "1: off", 0, 1, &F::typical_p),
        maybe("default_top_n_sigma", "-1: off", -1, 1e9, &F::top_n_sigma),
        maybe("default_repeat_penalty", "1: off", 0.01, 100, &F::repeat_penalty),
        maybe("default_repeat_last_n", "tokens that penalties look at; -1: all", -1, kMost,
              &F::repeat_last_n),
        maybe("default_frequency_penalty", "0: off", -2, 2, &F::frequency_penalty),
        maybe("default_presence_penalty", "0: off", -2, 2, &F::presence_penalty),
        maybe("default_dry_multiplier", "0: off", 0, 100, &F::dry_multiplier),
        maybe("default_dry_base", "growth of the DRY penalty", 1, 100, &F::dry_base),
        maybe("default_dry_allowed_length", "repeats up to this length are free", 0, kMost,
              &F::dry_allowed_length),
        maybe("default_dry_penalty_last_n", "tokens that DRY looks at; -1: all", -1, kMost,
              &F::dry_penalty_last_n),
        {"default_seed", "int_or_null", "seed of requests that name none; null: random", std::nullopt,
         std::nullopt,
         [](const L& live, JsonWriter& out) {
           live.sampling.seed ? out.value(*live.sampling.seed) : out.null();
         },
         [](L& live, const JsonNode* node) {
           live.sampling.seed = node ? openai::fold_seed(node->integer(INT64_MIN, INT64_MAX)) : std::nullopt;
         }},
        whole("default_n_predict", "cap of answers; -1: the window", -1, 1 << 30,
              [](auto& live) -> auto& { return live.predict; }),
        whole("reasoning_budget", "thinking tokens; -1: no limit", -1, 1 << 30,
              [](auto& live) -> auto& { return live.reasoning_budget; }),
        {"chat_template_kwargs", "object_or_null", "template variables; a request's win", std::nullopt,
         std::nullopt,
         [](const L& live, JsonWriter& out) {
           live.chat_template_kwargs.empty() ? out.null() : out.raw(live.chat_template_kwargs);
         },
         [](L& live, const JsonNode* node) {
           if (node && node->kind() != JsonKind::object) node->wrong("an object");
           live.chat_template_kwargs = node ? node->dump() : std::string();
         }},
        {"decode_timeout", "float", "seconds without a token that end a request", 1, 1e6,
         [](const L& live, JsonWriter& out) { out.value(live.decode_seconds); },
         [](L& live, const JsonNode* node) {
           if (!node) fail_param("decode_timeout", "decode_timeout: null is not a value of it");
           live.decode_seconds = node->number(1, 1e6);
         }},
        whole("max_pattern_size", "loop detection: longest pattern; 0: off", 0, 4096,
              [](auto& live) -> auto& { return live.loops.max_pattern; }),
        whole("min_pattern_size", "loop detection: shortest pattern", 1, 4096,
              [](auto& live) -> auto& { return live.loops.min_pattern; }),
        whole("min_count", "loop detection: repeats that end an answer", 2, 4096,
              [](auto& live) -> auto& { return live.loops.min_count; }),
    };
    add_engine_rows(list);
    return list;
  }();
  return all;
}

const Row* row_of(const std::string& key) {
  for (const auto& each : rows())
    if (key == each.key) return &each;
  return nullptr;
}

const Settings::Fixed* fixed_of(const std::vector<Settings::Fixed>& fixed, const std::string& key) {
  for (const auto& each : fixed)
    if (each.key == key) return &each;
  return nullptr;
}

std::string value_of(const Row& row, const L& live) {
  JsonWriter out;
  row.print(live, out);
  return out.take();
}

std::string current_json(const L& live, const std::vector<Settings::Fixed>& fixed) {
  JsonWriter out;
  out.begin_object();
  for (const auto& row : rows()) out.key(row.key).raw(value_of(row, live));
  for (const auto& each : fixed)
    if (!row_of(each.key)) out.key(each.key).raw(each.value_json);
  out.end_object();
  return out.take();
}

std::string fingerprint(const std::string& current) { return hex(sha256(current)).substr(0, 16); }

LiveSettings at_start(const ServiceOptions& options) {
  LiveSettings out;
  out.sampling = options.sampling;
  out.predict = options.predict;
  out.reasoning_budget = options.reasoning_budget;
  out.chat_template_kwargs = options.chat_template_kwargs;
  out.decode_seconds = options.limits.decode_seconds;
  out.step_token_budget = options.step_token_budget;
  out.max_per_key = static_cast<int>(options.max_per_key);
  out.language_bias = options.language_bias;
  out.parallel = options.parallel;
  out.keyed = !options.access.keys.empty();
  return out;
}

}  // namespace

Settings::Settings(const ServiceOptions& options)
    : first_(at_start(options)), live_(std::make_shared<const LiveSettings>(first_)) {}

std::shared_ptr<const LiveSettings> Settings::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

std::shared_ptr<const LiveSettings> Settings::over(std::shared_ptr<const LiveSettings> own) const {
  std::map<std::string, std::string> changed;
  {
    const std::lock_guard lock(mutex_);
    if (changed_.empty()) return own;
    changed = changed_;
  }
  auto out = std::make_shared<LiveSettings>(*own);
  for (const auto& [key, json] : changed) {
    const JsonNode value = JsonNode::parse(json);
    try {
      row_of(key)->set(*out, value.kind() == JsonKind::null ? nullptr : &value);
    } catch (const Error&) {
      // What this model cannot take leaves it as it is; tuning its engine says so.
    }
  }
  return out;
}

std::string Settings::print(const std::vector<Fixed>& fixed) const {
  const auto now = live();
  const std::string current = current_json(*now, fixed);
  JsonWriter out;
  out.begin_object().field("schema_version", 1).field("fingerprint", fingerprint(current));
  out.key("settings").begin_array();
  for (const auto& row : rows()) {
    out.begin_object().field("key", row.key).field("kind", row.kind).field("help", row.help);
    const Fixed* still = fixed_of(fixed, row.key);
    out.field("mutable", still == nullptr).key("read_only_reason");
    still ? out.value(still->reason) : out.null();
    out.key("allowed").null();
    out.key("min");
    row.low ? out.value(*row.low) : out.null();
    out.key("max");
    row.high ? out.value(*row.high) : out.null();
    out.key("default").raw(value_of(row, first_)).end_object();
  }
  for (const auto& each : fixed) {
    if (row_of(each.key)) continue;
    out.begin_object().field("key", each.key).field("kind", "str").field("help", "set at start-up");
    out.field("mutable", false).field("read_only_reason", each.reason).key("allowed").null();
    out.key("min").null().key("max").null().key("default").raw(each.value_json).end_object();
  }
  out.end_array().key("current").raw(current).end_object();
  return out.take();
}

Settings::Outcome Settings::patch(std::string_view body, const std::vector<Fixed>& fixed) {
  const JsonNode root = JsonNode::parse(body);
  if (root.kind() != JsonKind::object) root.wrong("an object");
  JsonNode values = root;
  bool replace = false;
  std::optional<std::string> wanted;
  if (root.contains("values")) {
    const auto op = root.string("op").value_or("merge");
    if (op != "merge" && op != "replace")
      fail_param("op", "op: expected merge or replace, found \"{}\"", op.substr(0, 64));
    replace = op == "replace";
    wanted = root.string("if_fingerprint");
    const auto given = root.find("values");
    if (!given || given->kind() != JsonKind::object) fail_param("values", "values: expected an object");
    values = *given;
  }
  const std::lock_guard lock(mutex_);
  if (wanted && *wanted != fingerprint(current_json(*live_, fixed)))
    refuse(409, "conflict", "the settings have changed since; read them again");
  auto next = std::make_shared<LiveSettings>(replace ? first_ : *live_);
  auto changed = replace ? decltype(changed_)() : changed_;
  JsonWriter applied, rejected;
  applied.begin_object();
  rejected.begin_array();
  size_t taken = 0, refused = 0;
  auto reject = [&](const std::string& key, const std::string& reason) {
    ++refused;
    rejected.begin_object().field("key", key).field("reason", reason).end_object();
  };
  for (const auto& [key, value] : values.members()) {
    const Row* row = row_of(key);
    const Fixed* still = fixed_of(fixed, key);
    if (!row || still) {
      reject(key.substr(0, 128), still ? still->reason : "no such setting");
      continue;
    }
    try {
      row->set(*next, value.kind() == JsonKind::null ? nullptr : &value);
      changed[key] = value.dump();
      applied.key(key).raw(value_of(*row, *next));
      ++taken;
    } catch (const Error& error) {
      reject(key, error.what());
    }
  }
  applied.end_object();
  rejected.end_array();
  Outcome out;
  out.status = taken == 0 && refused > 0 ? 400 : 200;
  if (out.status == 200) {
    live_ = next;
    changed_ = std::move(changed);
  }
  JsonWriter answer;
  answer.begin_object().key("applied").raw(applied.take()).key("rejected").raw(rejected.take());
  answer.field("fingerprint", fingerprint(current_json(*live_, fixed))).end_object();
  out.json = answer.take();
  return out;
}

}  // namespace mlxcel
