#include "api/openai/completion.h"

#include <variant>

#include <set>

#include "api/error.h"
#include "api/output_form.h"

namespace mlxcel::openai {
namespace {

constexpr size_t kMaxPrompts = 128;

std::string text_prompt(const JsonNode& node) {
  std::string text = node.string();
  if (!text.empty() && text.find_first_not_of(" \t\r\n\v\f") == std::string::npos) {
    fail_param(node.path(), "{}: the prompt is nothing but white space", node.path());
  }
  return text;
}

void parse_prompts(const JsonNode& body, const Bounds& bounds, CompletionRequest& out) {
  const auto node = body.find("prompt");
  if (!node) fail_param("prompt", "prompt: expected a string, an array of strings, or token ids; found none");
  auto add = [&](Prompt prompt, const std::string& path) {
    out.prompts.push_back(std::move(prompt));
    out.prompt_paths.push_back(path);
  };
  auto ids = [&](const JsonNode& list) {
    if (list.size() == 0) fail_param(list.path(), "{}: expected at least one token id", list.path());
    return list.integers(0, bounds.vocab_size - 1);
  };
  if (node->kind() == JsonKind::string) return add(text_prompt(*node), "prompt");
  if (node->kind() != JsonKind::array) node->wrong("a string, an array of strings, or token ids");
  if (node->size() == 0) fail_param("prompt", "prompt: expected at least one prompt, found an empty array");
  // items() names every element, which an array of a hundred thousand ids has no use for.
  const auto first = node->first_kind();
  if (first == JsonKind::number) return add(ids(*node), "prompt");
  if (node->size() > kMaxPrompts) {
    fail_param("prompt", "prompt: at most {} prompts, found {}", kMaxPrompts, node->size());
  }
  for (const auto& item : node->items()) {
    if (item.kind() == JsonKind::string) {
      add(text_prompt(item), item.path());
    } else if (item.kind() == JsonKind::array) {
      add(ids(item), item.path());
    } else {
      item.wrong("a string or an array of token ids");
    }
  }
}

void print_head(JsonWriter& out, const Identity& identity) {
  out.begin_object().field("id", identity.id).field("object", "text_completion");
  out.field("created", identity.created).field("model", identity.model);
  out.field("system_fingerprint", identity.fingerprint);
}

void print_legacy_logprobs(JsonWriter& out, const std::vector<LegacyScore>& tokens) {
  out.begin_object().key("tokens").begin_array();
  for (const auto& token : tokens) out.value(printable_token(token.score.bytes));
  out.end_array().key("token_logprobs").begin_array();
  for (const auto& token : tokens)
    token.known ? out.value(printable_logprob(token.score.logprob)) : out.null();
  out.end_array().key("top_logprobs").begin_array();
  for (const auto& token : tokens) {
    if (!token.known) {
      out.null();
      continue;
    }
    // Two tokens may print alike: the likelier one, which comes first, stands. The chosen one is always
    // there.
    out.begin_object();
    std::set<std::string> seen;
    for (const auto& [bytes, logprob] : token.score.top) {
      const auto name = printable_token(bytes);
      if (seen.insert(name).second) out.field(name, printable_logprob(logprob));
    }
    const auto name = printable_token(token.score.bytes);
    if (!seen.contains(name)) out.field(name, printable_logprob(token.score.logprob));
    out.end_object();
  }
  out.end_array().key("text_offset").begin_array();
  for (const auto& token : tokens) out.value(token.offset);
  out.end_array().end_object();
}

void print_choice(JsonWriter& out, const CompletionChoice& choice) {
  out.begin_object().field("index", choice.index).field("text", choice.text).key("logprobs");
  choice.with_logprobs ? print_legacy_logprobs(out, choice.logprobs) : void(out.null());
  out.key("finish_reason");
  choice.finish_reason.empty() ? out.null() : out.value(choice.finish_reason);
  out.end_object();
}

}  // namespace

CompletionRequest parse_completion(std::string_view text, const Bounds& bounds) {
  const JsonNode body = JsonNode::parse_request(text);
  CompletionRequest out;
  out.model = body.string("model").value_or("");
  parse_prompts(body, bounds, out);
  out.suffix = body.string("suffix");
  if (out.suffix && (out.prompts.size() != 1 || !std::holds_alternative<std::string>(out.prompts.front())))
    fail_param("suffix", "suffix: only with one prompt, which is text");
  const auto cap = body.integer("max_tokens", 0, INT32_MAX);
  const auto newer_cap = body.integer("max_completion_tokens", 0, INT32_MAX);
  out.max_tokens = static_cast<int>(newer_cap ? *newer_cap : cap.value_or(16));
  out.n = static_cast<int>(body.integer("n", 1, bounds.max_choices).value_or(1));
  if (const auto best_of = body.integer("best_of", 1, INT32_MAX); best_of && *best_of != out.n) {
    fail_param("best_of", "best_of: must equal n, which is {}; found {}", out.n, *best_of);
  }
  const auto rows = out.prompts.size() * static_cast<size_t>(out.n);
  if (rows > static_cast<size_t>(bounds.max_choices)) {
    fail_param("n", "n: {} prompts times n = {} is more than can run, {}", out.prompts.size(), out.n,
               bounds.max_choices);
  }
  out.echo = body.boolean("echo").value_or(false);
  out.timings_per_token = body.boolean("timings_per_token").value_or(false);
  out.logprobs = static_cast<int>(body.integer("logprobs", 0, 20).value_or(-1));
  out.sampling = parse_sampling(body, bounds);
  out.stream = parse_stream(body);
  out.form = parse_output_form(body);
  refuse_unsupported(body);
  out.echoed = parse_inert(body);
  if (const auto ping = body.integer("sse_ping_interval", -1, 86400))
    out.ping_interval = static_cast<int>(*ping);
  out.ignored = body.unknown();
  return out;
}

std::string print_completion(const CompletionAnswer& answer) {
  JsonWriter out;
  print_head(out, answer.identity);
  out.key("choices").begin_array();
  for (const auto& choice : answer.choices) print_choice(out, choice);
  out.end_array().key("usage");
  print_usage(out, answer.usage);
  out.key("timings");
  print_timings(out, answer.timings);
  if (!answer.warnings_json.empty()) out.key("warnings").raw(answer.warnings_json);
  out.end_object();
  return out.take();
}

std::string print_completion_chunk(const Identity& identity, const CompletionChoice& choice, bool usage_null,
                                   const TimingFigures* timings, const std::string& warnings_json) {
  JsonWriter out;
  print_head(out, identity);
  out.key("choices").begin_array();
  print_choice(out, choice);
  out.end_array();
  if (usage_null) out.key("usage").null();
  if (timings) {
    out.key("timings");
    print_timings(out, *timings);
  }
  if (!warnings_json.empty()) out.key("warnings").raw(warnings_json);
  out.end_object();
  return out.take();
}

std::string print_completion_usage_chunk(const Identity& identity, const Usage& usage,
                                         const TimingFigures& timings) {
  JsonWriter out;
  print_head(out, identity);
  out.key("choices").begin_array().end_array().key("usage");
  print_usage(out, usage);
  out.key("timings");
  print_timings(out, timings);
  out.end_object();
  return out.take();
}

}  // namespace mlxcel::openai
