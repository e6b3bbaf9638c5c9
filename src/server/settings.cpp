#include "server/settings.h"

#include <functional>
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

const std::vector<Row>& rows() {
  using F = SamplingFlags;
  constexpr double kMost = 1 << 30;
  static const std::vector<Row> all = {
      maybe("default_temperature", "temperature of requests that name none", 0, 100, &F::temperature),
      maybe("default_top_k", "0: off", 0, kMost, &F::top_k),
      maybe("default_top_p", "1: off", 0, 1, &F::top_p),
      maybe("default_min_p", "0: off", 0, 1, &F::min_p),
      maybe("default_typical_p", "1: off", 0, 1, &F::typical_p),
      maybe("default_top_n_sigma", "-1: off", -1, 1e9, &F::top_n_sigma),
      maybe("default_repeat_penalty", "1: off", 0.01, 100, &F::repeat_penalty),
      maybe("default_repeat_last_n", "tokens that penalties look at; -1: all", -1, kMost, &F::repeat_last_n),
      maybe("default_frequency_penalty", "0: off", -2, 2, &F::frequency_penalty),
      maybe("default_presence_penalty", "0: off", -2, 2, &F::presence_penalty),
      maybe("default_dry_multiplier", "0: off", 0, 100, &F::dry_multiplier),
      maybe("default_dry_base", "growth of the DRY penalty", 0, 100, &F::dry_base),
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
  return all;
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
  for (const auto& each : fixed) out.key(each.key).raw(each.value_json);
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
  return out;
}

}  // namespace

Settings::Settings(const ServiceOptions& options)
    : first_(at_start(options)), live_(std::make_shared<const LiveSettings>(first_)) {}

std::shared_ptr<const LiveSettings> Settings::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

std::string Settings::print(const std::vector<Fixed>& fixed) const {
  const auto now = live();
  const std::string current = current_json(*now, fixed);
  JsonWriter out;
  out.begin_object().field("schema_version", 1).field("fingerprint", fingerprint(current));
  out.key("settings").begin_array();
  for (const auto& row : rows()) {
    out.begin_object().field("key", row.key).field("kind", row.kind).field("help", row.help);
    out.field("mutable", true).key("read_only_reason").null().key("allowed").null();
    out.key("min");
    row.low ? out.value(*row.low) : out.null();
    out.key("max");
    row.high ? out.value(*row.high) : out.null();
    out.key("default").raw(value_of(row, first_)).end_object();
  }
  for (const auto& each : fixed) {
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
  JsonWriter applied, rejected;
  applied.begin_object();
  rejected.begin_array();
  size_t taken = 0, refused = 0;
  auto reject = [&](const std::string& key, const std::string& reason) {
    ++refused;
    rejected.begin_object().field("key", key).field("reason", reason).end_object();
  };
  for (const auto& [key, value] : values.members()) {
    const Row* row = nullptr;
    for (const auto& each : rows()) {
      if (key == each.key) row = &each;
    }
    if (!row) {
      std::string reason = "no such setting";
      for (const auto& each : fixed) {
        if (each.key == key) reason = each.reason;
      }
      reject(key.substr(0, 128), reason);
      continue;
    }
    try {
      row->set(*next, value.kind() == JsonKind::null ? nullptr : &value);
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
  if (out.status == 200) live_ = next;
  JsonWriter answer;
  answer.begin_object().key("applied").raw(applied.take()).key("rejected").raw(rejected.take());
  answer.field("fingerprint", fingerprint(current_json(*live_, fixed))).end_object();
  out.json = answer.take();
  return out;
}

}  // namespace mlxcel
