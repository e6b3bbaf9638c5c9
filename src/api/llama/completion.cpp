#include "api/llama/completion.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "api/error.h"
#include "api/output_form.h"
#include "api/utf8.h"

namespace mlxcel::llama {
namespace {

constexpr size_t kMaxPrompts = 128;

MixedPrompt parse_mixed(const JsonNode& node, int vocab_size) {
  MixedPrompt out;
  if (node.kind() == JsonKind::string) {
    out.emplace_back(node.string());
    return out;
  }
  if (node.kind() == JsonKind::object) {
    if (const auto media = node.find("multimodal_data"); media && media->size() > 0) {
      refuse_param(501, "not_supported_error", media->path(), "{}: this model takes text only",
                   media->path());
    }
    const auto text = node.string("prompt_string");
    if (!text) fail_param(node.path() + ".prompt_string", "{}.prompt_string: expected a string", node.path());
    out.emplace_back(*text);
    return out;
  }
  if (node.kind() != JsonKind::array) node.wrong("a string, token ids, or a list of both");
  for (const auto& item : node.items()) {
    if (item.kind() == JsonKind::string) {
      out.emplace_back(item.string());
      continue;
    }
    const auto id = static_cast<int32_t>(item.integer(0, vocab_size - 1));
    if (out.empty() || !std::holds_alternative<std::vector<int32_t>>(out.back()))
      out.emplace_back(std::vector<int32_t>());
    std::get<std::vector<int32_t>>(out.back()).push_back(id);
  }
  return out;
}

void parse_prompts(const JsonNode& body, CompletionRequest& out, int vocab_size) {
  const auto node = body.find("prompt");
  if (!node) fail_param("prompt", "prompt: expected a string, token ids, or a list of prompts; found none");
  if (node->kind() == JsonKind::array) {
    // Only numbers, or numbers among strings: one prompt. Anything else is a list of prompts.
    bool numbers = node->size() == 0;
    for (const auto& item : node->items()) numbers = numbers || item.kind() == JsonKind::number;
    out.many = !numbers;
  }
  if (!out.many) {
    out.prompts.push_back(parse_mixed(*node, vocab_size));
    out.prompt_paths.emplace_back("prompt");
    return;
  }
  if (node->size() > kMaxPrompts)
    fail_param("prompt", "prompt: at most {} prompts, found {}", kMaxPrompts, node->size());
  for (const auto& item : node->items()) {
    out.prompts.push_back(parse_mixed(item, vocab_size));
    out.prompt_paths.push_back(item.path());
  }
}

void add_bias(CompletionRequest& out, const JsonNode& key, const JsonNode& value, int vocab_size) {
  const float bias =
      value.kind() == JsonKind::boolean ? -100.0f : static_cast<float>(value.number(-1e6, 1e6));
  if (value.kind() == JsonKind::boolean && value.boolean()) value.wrong("a number, or false to ban");
  if (key.kind() == JsonKind::number) {
    out.sampling.logit_bias[static_cast<int32_t>(key.integer(0, vocab_size - 1))] =
        std::clamp(bias, -100.0f, 100.0f);
  } else {
    out.text_bias.emplace_back(key.string(), std::clamp(bias, -100.0f, 100.0f));
  }
}

void parse_bias(const JsonNode& body, CompletionRequest& out, int vocab_size) {
  const auto node = body.find("logit_bias");
  if (!node) return;
  if (node->kind() == JsonKind::array) {
    for (const auto& pair : node->items()) {
      if (pair.kind() != JsonKind::array || pair.size() != 2) pair.wrong("a pair of token and bias");
      const auto items = pair.items();
      add_bias(out, items[0], items[1], vocab_size);
    }
  } else if (node->kind() == JsonKind::object) {
    for (const auto& [name, value] : node->members()) {
      int32_t id = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
      const bool number = error == std::errc() && end == name.data() + name.size();
      const auto key = JsonNode::parse(number ? name : JsonWriter().value(name).take());
      add_bias(out, key, value, vocab_size);
    }
  } else {
    node->wrong("pairs of token and bias, or an object");
  }
}

void parse_sampling(const JsonNode& body, CompletionRequest& out, const openai::Bounds& bounds) {
  auto& s = out.sampling;
  auto real = [&](const char* key, double low, double high, std::optional<float>& field) {
    if (const auto x = body.number(key, low, high)) field = static_cast<float>(*x);
  };
  auto whole = [&](const char* key, int64_t low, int64_t high, std::optional<int>& field) {
    if (const auto x = body.integer(key, low, high)) field = static_cast<int>(*x);
  };
  real("temperature", -1e6, 1e6, s.temperature);
  if (s.temperature && *s.temperature < 0) s.temperature = 0.0f;  // greedy, as llama-server has it
  real("top_p", 0, 1, s.top_p);
  real("min_p", 0, 1, s.min_p);
  real("repeat_penalty", 0.01, 100, s.repeat_penalty);
  real("frequency_penalty", -100, 100, s.frequency_penalty);
  real("presence_penalty", -100, 100, s.presence_penalty);
  whole("top_k", -1, std::numeric_limits<int>::max(), s.top_k);
  if (s.top_k == -1) s.top_k = 0;
  whole("repeat_last_n", -1, std::numeric_limits<int>::max(), s.repeat_last_n);
  whole("min_keep", 0, std::numeric_limits<int>::max(), s.min_keep);
  if (const auto seed = body.integer("seed", INT64_MIN, INT64_MAX)) {
    s.seed = openai::fold_seed(*seed);
    s.seed_given = true;
  }
  s.ignore_eos = body.boolean("ignore_eos");
  openai::parse_chain(body, s);
  s.post_sampling_probs = body.boolean("post_sampling_probs").value_or(false);
  if (const auto stop = body.find("stop")) {
    if (stop->kind() == JsonKind::string) {
      s.stop.push_back(stop->string());
    } else {
      for (const auto& item : stop->items()) s.stop.push_back(item.string());
    }
    for (const auto& text : s.stop) {
      if (text.empty()) fail_param("stop", "stop: a stop string must not be empty");
    }
  }
  parse_bias(body, out, bounds.vocab_size);
}

void print_probability(JsonWriter& out, int32_t id, const std::string& bytes, float logprob, bool post) {
  out.field("id", id).field("token", openai::printable_token(bytes)).key("bytes").begin_array();
  for (const char c : bytes) out.value(static_cast<int>(static_cast<unsigned char>(c)));
  out.end_array();
  if (post)
    out.field("prob", std::exp(logprob));
  else
    out.field("logprob", openai::printable_logprob(logprob));
}

void print_probabilities(JsonWriter& out, const std::vector<Probability>& list, bool post) {
  out.key("completion_probabilities").begin_array();
  for (const auto& p : list) {
    out.begin_object();
    print_probability(out, p.id, p.score.bytes, p.score.logprob, post);
    out.key(post ? "top_probs" : "top_logprobs").begin_array();
    for (size_t i = 0; i < p.score.top.size(); ++i) {
      out.begin_object();
      print_probability(out, p.top_ids.at(i), p.score.top[i].first, p.score.top[i].second, post);
      out.end_object();
    }
    out.end_array().end_object();
  }
  out.end_array();
}

void print_ids(JsonWriter& out, const std::vector<int32_t>& ids) {
  out.begin_array();
  for (const int32_t id : ids) out.value(id);
  out.end_array();
}

/// grammar_lazy, grammar_triggers ({type: 0, token} or {type: 1, value}), preserved_tokens.
void parse_triggers(const JsonNode& body, CompletionRequest& out, int vocab_size) {
  constexpr size_t kMost = 256;
  const bool lazy = body.boolean("grammar_lazy").value_or(false);
  if (const auto list = body.find("preserved_tokens")) {
    if (list->size() > kMost) fail_param("preserved_tokens", "preserved_tokens: at most {}", kMost);
    for (const auto& item : list->items()) out.shown.push_back(item.string());
  }
  const auto list = body.find("grammar_triggers");
  if (list && list->size() > kMost) fail_param("grammar_triggers", "grammar_triggers: at most {}", kMost);
  for (const auto& item : list ? list->items() : std::vector<JsonNode>()) {
    if (item.kind() != JsonKind::object) item.wrong("an object with type and value");
    const auto type = item.integer("type", 0, 3);
    GrammarTrigger trigger;
    if (type == 0) {
      const auto token = item.integer("token", 0, vocab_size - 1);
      if (!token) fail_param(item.path() + ".token", "{}.token: expected a token id", item.path());
      trigger.token = static_cast<int32_t>(*token);
    } else if (type == 1) {
      trigger.word = item.string("value").value_or("");
      if (trigger.word.empty())
        fail_param(item.path() + ".value", "{}.value: expected a text that is not empty", item.path());
    } else {
      fail_param(item.path() + ".type",
                 "{}.type: expected 0 (a token) or 1 (a word); patterns are not waited for", item.path());
    }
    if (lazy) out.triggers.push_back(std::move(trigger));
  }
  if (lazy && out.triggers.empty())
    fail_param("grammar_triggers", "grammar_lazy: expected grammar_triggers, found none");
}

}  // namespace

CompletionRequest parse_completion(std::string_view text, const openai::Bounds& bounds, bool infill) {
  const JsonNode body = JsonNode::parse_request(text);
  CompletionRequest out;
  if (infill) {
    out.prefix = body.string("input_prefix").value_or("");
    out.suffix = body.string("input_suffix").value_or("");
    out.infill_prompt = body.string("prompt").value_or("");
    if (const auto extra = body.find("input_extra")) {
      for (const auto& item : extra->items()) {
        const auto content = item.string("text");
        if (!content) fail_param(item.path() + ".text", "{}.text: expected a string", item.path());
        out.extra.emplace_back(item.string("filename").value_or("tmp"), *content);
      }
    }
    out.prompts.emplace_back();
    out.prompt_paths.emplace_back("input_prefix");
  } else {
    parse_prompts(body, out, bounds.vocab_size);
  }
  body.string("model");
  for (const char* key : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    if (const auto cap = body.integer(key, -1, INT32_MAX); cap && !out.max_tokens_given) {
      out.max_tokens = static_cast<int>(*cap);
      out.max_tokens_given = true;
    }
  }
  for (const char* key : {"n_cmpl", "n"}) {
    if (const auto n = body.integer(key, 1, bounds.max_choices)) out.n = static_cast<int>(*n);
  }
  if (const size_t rows = out.prompts.size() * static_cast<size_t>(out.n);
      rows > static_cast<size_t>(bounds.max_choices)) {
    fail_param("prompt", "prompt: {} prompts times n = {} is more than can run, {}", out.prompts.size(),
               out.n, bounds.max_choices);
  }
  for (const char* key : {"logprobs", "n_probs"}) {
    if (const auto n = body.integer(key, 0, bounds.vocab_size)) out.n_probs = static_cast<int>(*n);
  }
  out.stream = body.boolean("stream").value_or(false);
  out.return_tokens = body.boolean("return_tokens").value_or(false);
  out.timings_per_token = body.boolean("timings_per_token").value_or(false);
  out.echo = body.boolean("echo").value_or(false);
  if (const auto fields = body.find("response_fields")) {
    for (const auto& item : fields->items()) out.response_fields.push_back(item.string());
  }
  if (const auto ms = body.number("t_max_predict_ms", -1, 1e12)) out.t_max_predict_ms = *ms;
  if (const auto ping = body.integer("sse_ping_interval", -1, 86400))
    out.ping_interval = static_cast<int>(*ping);
  out.n_indent = static_cast<int>(body.integer("n_indent", 0, INT32_MAX).value_or(0));
  if (const auto options = body.find("stream_options"); options && options->kind() != JsonKind::object)
    options->wrong("an object");
  body.boolean("verbose");
  parse_triggers(body, out, bounds.vocab_size);
  for (const char* key :
       {"chat_format", "generation_prompt", "parse_tool_calls", "reasoning_budget_tokens"}) {
    if (body.has(key)) fail_param(key, "{}: belongs to the chat route", key);
  }
  parse_sampling(body, out, bounds);
  out.form = parse_output_form(body);
  openai::refuse_unsupported(body);
  for (const auto& name : body.unknown()) {
    if (!name.starts_with("speculative.")) out.ignored.push_back(name);
  }
  return out;
}

void print_settings(JsonWriter& out, const Settings& s) {
  const auto& p = s.sampling;
  out.begin_object().field("n_predict", s.n_predict).field("max_tokens", s.n_predict).field("seed", s.seed);
  out.field("temperature", p.temperature).field("dynatemp_range", p.dynatemp_range);
  out.field("dynatemp_exponent", p.dynatemp_exponent)
      .field("top_k", p.top_k)
      .field("top_p", p.top_p)
      .field("min_p", p.min_p);
  out.field("top_n_sigma", p.top_n_sigma > 0 ? p.top_n_sigma : -1.0f)
      .field("xtc_probability", p.xtc_probability);
  out.field("xtc_threshold", p.xtc_threshold).field("typical_p", p.typical_p);
  out.field("repeat_last_n", p.repeat_last_n).field("repeat_penalty", p.repeat_penalty);
  out.field("presence_penalty", p.presence_penalty).field("frequency_penalty", p.frequency_penalty);
  out.field("dry_multiplier", p.dry_multiplier).field("dry_base", p.dry_base);
  out.field("dry_allowed_length", p.dry_allowed_length).field("dry_penalty_last_n", p.dry_penalty_last_n);
  out.key("dry_sequence_breakers").begin_array();
  for (const auto& text : p.dry_breakers) out.value(text);
  out.end_array()
      .field("mirostat", p.mirostat)
      .field("mirostat_tau", p.mirostat_tau)
      .field("mirostat_eta", p.mirostat_eta);
  out.field("adaptive_target", p.adaptive_target).field("adaptive_decay", p.adaptive_decay);
  out.key("stop").begin_array();
  for (const auto& text : s.stop) out.value(text);
  out.end_array()
      .field("n_keep", s.n_keep)
      .field("n_discard", s.n_discard)
      .field("ignore_eos", s.ignore_eos)
      .field("stream", s.stream);
  out.key("logit_bias").begin_array();
  for (const auto& [token, bias] : p.logit_bias)
    out.begin_object().field("token", token).field("bias", bias).end_object();
  out.end_array()
      .field("n_probs", s.n_probs)
      .field("min_keep", p.min_keep)
      .field("grammar", s.grammar)
      .field("grammar_lazy", s.grammar_lazy);
  out.key("samplers").begin_array();
  for (const Stage stage : p.samplers) out.value(to_string(stage));
  out.end_array().key("lora").begin_array();
  for (const auto& [id, scale] : s.adapters)
    out.begin_object().field("id", id).field("scale", scale).end_object();
  out.end_array();
  out.field("post_sampling_probs", p.post_sampling_probs).field("kv_cache_mode", s.kv_mode).end_object();
}

std::string print_frame(const Frame& f) {
  JsonWriter out;
  out.begin_object().field("index", f.index).field("content", f.content).key("tokens");
  print_ids(out, f.tokens);
  out.field("stop", false).field("id_slot", f.id_slot).field("tokens_predicted", f.predicted);
  out.field("tokens_evaluated", f.evaluated);
  if (f.with_probabilities) print_probabilities(out, f.probabilities, f.post_sampling);
  if (f.progress) {
    out.key("prompt_progress");
    openai::print_progress(out, *f.progress);
  }
  if (f.timings) {
    out.key("timings");
    openai::print_timings(out, *f.timings);
  }
  out.end_object();
  return out.take();
}

std::string print_answer(const Answer& a) {
  JsonWriter out;
  out.begin_object().field("index", a.index).field("content", a.content).key("tokens");
  print_ids(out, a.tokens);
  out.field("id_slot", a.id_slot).field("stop", true).field("model", a.model);
  out.field("tokens_predicted", a.predicted).field("tokens_evaluated", a.evaluated);
  out.key("generation_settings");
  print_settings(out, a.settings);
  out.field("prompt", a.prompt).field("has_new_line", a.has_new_line).field("truncated", a.truncated);
  out.field("stop_type", a.stop_type).field("stopping_word", a.stopping_word);
  out.field("tokens_cached", a.predicted > 0 ? a.evaluated + a.predicted - 1 : a.evaluated).key("timings");
  openai::print_timings(out, a.figures);
  if (a.with_probabilities) print_probabilities(out, a.probabilities, a.post_sampling);
  out.end_object();
  return out.take();
}

std::string project(const std::string& json, const std::vector<std::string>& fields) {
  if (fields.empty()) return json;
  const auto root = JsonNode::parse(json);
  JsonWriter out;
  out.begin_object();
  std::vector<std::string> done;
  for (const auto& field : fields) {
    if (std::find(done.begin(), done.end(), field) != done.end()) continue;
    done.push_back(field);
    std::optional<JsonNode> node = root;
    size_t at = 0;
    while (node && at <= field.size()) {
      const size_t slash = std::min(field.find('/', at), field.size());
      node = node->kind() == JsonKind::object ? node->find(field.substr(at, slash - at)) : std::nullopt;
      at = slash + 1;
    }
    if (node) out.key(field).raw(node->dump());
  }
  out.end_object();
  return out.take();
}

TokenizeRequest parse_tokenize(std::string_view text, int vocab_size) {
  const JsonNode body = JsonNode::parse_request(text);
  TokenizeRequest out;
  if (const auto content = body.find("content")) out.content = parse_mixed(*content, vocab_size);
  out.add_special = body.boolean("add_special").value_or(false);
  out.parse_special = body.boolean("parse_special").value_or(true);
  out.with_pieces = body.boolean("with_pieces").value_or(false);
  return out;
}

std::string print_tokens(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens, bool with_pieces) {
  JsonWriter out;
  out.begin_object().key("tokens").begin_array();
  for (const TokenId id : tokens) {
    if (!with_pieces) {
      out.value(id);
      continue;
    }
    const std::string bytes = tokenizer.token_bytes(id);
    out.begin_object().field("id", id).key("piece");
    if (is_utf8(bytes)) {
      out.value(bytes);
    } else {
      out.begin_array();
      for (const char c : bytes) out.value(static_cast<int>(static_cast<unsigned char>(c)));
      out.end_array();
    }
    out.end_object();
  }
  out.end_array().end_object();
  return out.take();
}

std::vector<int32_t> parse_detokenize(std::string_view text, int vocab_size) {
  const JsonNode body = JsonNode::parse_request(text);
  const auto tokens = body.find("tokens");
  if (!tokens) return {};
  return tokens->integers(0, vocab_size - 1);
}

std::vector<TokenId> encode_mixed(const Tokenizer& tokenizer, const MixedPrompt& prompt, bool add_special,
                                  bool parse_special) {
  std::vector<TokenId> out;
  bool first = true;
  for (const auto& part : prompt) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&part)) {
      out.insert(out.end(), ids->begin(), ids->end());
    } else {
      const auto more = tokenizer.encode(std::get<std::string>(part), add_special && first, parse_special);
      out.insert(out.end(), more.begin(), more.end());
    }
    first = false;
  }
  return out;
}

std::string text_of(const Tokenizer& tokenizer, const MixedPrompt& prompt) {
  std::string out;
  for (const auto& part : prompt) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&part))
      out += tokenizer.decode(*ids, false);
    else
      out += std::get<std::string>(part);
  }
  return out;
}

}  // namespace mlxcel::llama
