// Rows of the table: vectors and scores, the models beside the first that give them, and the form that every
// answer has unless a request wants another.
#include <fmt/format.h>

#include "api/error.h"
#include "api/json_node.h"
#include "app/flags/flag.h"

namespace mlxcel::app {
namespace {

using Kind = Flag::Kind;
using S = FlagState;

constexpr size_t kMostGrammar = 256 * 1024;
constexpr size_t kMostSchema = 64 * 1024;

void set_form(S& s, const Flag& flag, const std::string& text, bool schema) {
  auto& service = s.serve.service;
  if (text.size() > (schema ? kMostSchema : kMostGrammar))
    throw UsageError(fmt::format("{}: {} bytes, at most {}", flag.name(), text.size(),
                                 schema ? kMostSchema : kMostGrammar));
  if (schema) {
    try {
      JsonNode::parse(text);
    } catch (const Error& error) {
      throw UsageError(fmt::format("{}: {}", flag.name(), error.what()));
    }
  }
  (schema ? service.json_schema : service.grammar) = text;
  if (!service.json_schema.empty() && !service.grammar.empty())
    throw UsageError(fmt::format("{}: --grammar and --json-schema: give one of them", flag.name()));
}

void add_forms(std::vector<Flag>& f) {
  const char* g = "The form of answers";
  f.push_back({"--grammar", "", g, Kind::value, "GBNF", "every answer, unless its request wants another form",
               [](S& s, const Flag& flag, const std::string& v) { set_form(s, flag, v, false); }});
  f.push_back({"--grammar-file", "", g, Kind::value, "FILE", "the same from a file",
               [](S& s, const Flag& flag, const std::string& v) {
                 set_form(s, flag, text_file(v, flag.name().c_str(), kMostGrammar), false);
               }});
  f.push_back({"-j,--json-schema", "", g, Kind::value, "JSON", "the same as a JSON schema",
               [](S& s, const Flag& flag, const std::string& v) { set_form(s, flag, v, true); }});
  f.push_back({"-jf,--json-schema-file", "", g, Kind::value, "FILE", "the same from a file",
               [](S& s, const Flag& flag, const std::string& v) {
                 set_form(s, flag, text_file(v, flag.name().c_str(), kMostSchema), true);
               }});
}

void add_vectors(std::vector<Flag>& f) {
  const char* g = "Vectors and scores";
  f.push_back({"--embedding-model", "LLAMA_ARG_EMBEDDING_MODEL,MLXCEL_EMBEDDING_MODEL", g, Kind::value, "REF",
               "a model beside the first that embeds; alone: the model that is served",
               text([](S& s, const auto& v) { s.serve.side.embedder = v; })});
  f.push_back({"--reranker-model", "LLAMA_ARG_RERANKER_MODEL,MLXCEL_RERANKER_MODEL", g, Kind::value, "REF",
               "a model beside the first that scores documents",
               text([](S& s, const auto& v) { s.serve.side.reranker = v; })});
  f.push_back(
      {"--embedding-max-length", "MLXCEL_EMBEDDING_MAX_LENGTH", g, Kind::value, "N",
       "tokens of one text of --embedding-model; 0 (default): the model's, at most 8192",
       integer(0, 1 << 20, [](S& s, long long n) { s.serve.side.max_length = static_cast<int>(n); })});
  f.push_back({"--embedding-queue-depth", "MLXCEL_EMBEDDING_QUEUE_DEPTH", g, Kind::value, "N",
               "requests for vectors or scores that may wait (8)", integer(1, 65536, [](S& s, long long n) {
                 s.serve.transport.limits.blocking_jobs = static_cast<size_t>(n) + 4;
               })});
  f.push_back({"--embedding-request-timeout-secs", "MLXCEL_EMBEDDING_REQUEST_TIMEOUT_SECS", g, Kind::value,
               "S", "what takes longer is answered with 504 (120)",
               real(0.001, 1e6, [](S& s, double x) { s.serve.service.embedding_seconds = x; })});
  f.push_back(
      {"--embd-normalize", "", g, Kind::value, "N",
       "-1 none, 0 largest value 32760, 1 taxicab, 2 euclidean, else the p-norm; default: the model's",
       integer(-1, 1 << 20,
               [](S& s, long long n) { s.serve.service.embd_normalize = static_cast<int>(n); })});
}

}  // namespace

void add_side_flags(std::vector<Flag>& flags) {
  add_vectors(flags);
  add_forms(flags);
}

}  // namespace mlxcel::app
