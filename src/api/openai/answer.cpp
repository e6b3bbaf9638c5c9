#include "api/openai/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "api/json_node.h"
#include "api/utf8.h"

namespace mlxcel::openai {

void print_usage(JsonWriter& out, const Usage& usage) {
  out.begin_object();
  out.field("prompt_tokens", usage.prompt_tokens).field("completion_tokens", usage.completion_tokens);
  out.field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  out.key("prompt_tokens_details").begin_object().field("cached_tokens", usage.cached_tokens).end_object();
  out.key("completion_tokens_details").begin_object().field("reasoning_tokens", usage.reasoning_tokens);
  out.field("accepted_prediction_tokens", 0).field("rejected_prediction_tokens", 0).end_object();
  out.end_object();
}

void print_timings(JsonWriter& out, const TimingFigures& t) {
  auto rate = [](int count, double ms) { return ms > 0 && count > 0 ? 1e3 * count / ms : 0.0; };
  auto each = [](int count, double ms) { return count > 0 ? ms / count : 0.0; };
  out.begin_object()
      .field("cache_n", t.cache_n)
      .field("prompt_n", t.prompt_n)
      .field("prompt_ms", t.prompt_ms);
  out.field("prompt_per_token_ms", each(t.prompt_n, t.prompt_ms));
  out.field("prompt_per_second", rate(t.prompt_n, t.prompt_ms));
  // The first token comes from the prompt's own step.
  out.field("predicted_n", t.predicted_n).field("predicted_ms", t.predicted_ms);
  out.field("predicted_per_token_ms", each(t.predicted_n - 1, t.predicted_ms));
  out.field("predicted_per_second", rate(t.predicted_n - 1, t.predicted_ms));
  if (t.draft_rounds > 0)
    out.field("draft_n", t.draft_n)
        .field("draft_n_accepted", t.draft_n_accepted)
        .field("draft_rounds", t.draft_rounds)
        .field("draft_kind", t.draft_kind);
  out.end_object();
}

void print_progress(JsonWriter& out, const PromptProgress& p) {
  out.begin_object().field("total", p.total).field("cache", p.cache).field("processed", p.processed);
  out.field("time_ms", p.time_ms).end_object();
}

std::string printable_token(const std::string& bytes) {
  if (is_utf8(bytes)) return bytes;
  std::string out;
  for (const char c : bytes)
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::string print_warning(const std::string& type, const std::string& message) {
  JsonWriter out;
  out.begin_array().begin_object().field("type", type).field("message", message).end_object().end_array();
  return out.take();
}

std::string merge_objects(const std::string& below, const std::string& above) {
  if (below.empty()) return above;
  if (above.empty()) return below;
  const JsonNode first = JsonNode::parse(below);
  const JsonNode second = JsonNode::parse(above);
  JsonWriter out;
  out.begin_object();
  for (const auto& [name, value] : second.members()) out.key(name).raw(value.dump());
  for (const auto& [name, value] : first.members()) {
    if (!second.contains(name)) out.key(name).raw(value.dump());
  }
  out.end_object();
  return out.take();
}

float printable_logprob(float logprob) { return std::max(logprob, -9999.0f); }

namespace {

void print_score(JsonWriter& out, const std::string& bytes, float logprob) {
  out.field("token", printable_token(bytes)).field("logprob", printable_logprob(logprob));
  out.key("bytes").begin_array();
  for (const char c : bytes) out.value(static_cast<int>(static_cast<unsigned char>(c)));
  out.end_array();
}

}  // namespace

void print_chat_logprobs(JsonWriter& out, const std::vector<TokenScore>& tokens) {
  out.begin_object().key("content").begin_array();
  for (const auto& token : tokens) {
    out.begin_object();
    print_score(out, token.bytes, token.logprob);
    out.key("top_logprobs").begin_array();
    for (const auto& [bytes, logprob] : token.top) {
      out.begin_object();
      print_score(out, bytes, logprob);
      out.end_object();
    }
    out.end_array().end_object();
  }
  out.end_array().key("refusal").null().end_object();
}

}  // namespace mlxcel::openai
