#include "api/llama/rerank.h"

#include <algorithm>
#include <numeric>

#include "api/error.h"
#include "api/json_node.h"
#include "api/json_writer.h"

namespace mlxcel::llama {
namespace {

constexpr size_t kMostDocuments = 4096;

/// A string, or an object with `text`.
std::string text_of(const JsonNode& node, const char* otherwise) {
  if (node.kind() == JsonKind::string) return node.string();
  if (node.kind() != JsonKind::object) fail_param(node.path(), "{}", otherwise);
  for (const char* key : {"image", "image_url"}) {
    if (node.contains(key))
      refuse_param(501, "not_supported_error", node.path(), "{}: this model does not see images",
                   node.path());
  }
  const auto text = node.string("text");
  if (!text) fail_param(node.path(), "{}", otherwise);
  return *text;
}

}  // namespace

RerankRequest parse_rerank(std::string_view text) {
  const JsonNode body = JsonNode::parse_request(text);
  RerankRequest out;
  const auto query = body.find("query");
  if (!query) fail_param("query", "\"query\" must be provided");
  out.query = text_of(*query, "\"query\" must be a string");
  auto documents = body.find("documents");
  const auto texts = body.find("texts");
  out.tei = !documents && texts;
  if (!documents) documents = texts;
  static constexpr const char* kWanted = "\"documents\" must be a non-empty string array";
  if (!documents || documents->kind() != JsonKind::array || documents->size() == 0)
    fail_param("documents", "{}", kWanted);
  if (documents->size() > kMostDocuments)
    fail_param("documents", "documents: at most {}, found {}", kMostDocuments, documents->size());
  for (const auto& item : documents->items()) out.documents.push_back(text_of(item, kWanted));
  out.top_n = static_cast<int>(body.integer("top_n", 1, INT32_MAX).value_or(0));
  const bool jina = body.boolean("return_documents").value_or(false);
  const bool own = body.boolean("return_text").value_or(false);
  out.return_documents = jina || own;
  out.instruction = body.string("instruction").value_or("");
  out.model = body.string("model").value_or("");
  out.ignored = body.unknown();
  return out;
}

std::string print_rerank(const RerankRequest& request, const std::vector<double>& scores, int prompt_tokens,
                         const std::string& model) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (request.top_n > 0 && order.size() > static_cast<size_t>(request.top_n))
    order.resize(static_cast<size_t>(request.top_n));
  JsonWriter out;
  if (!request.tei) {
    out.begin_object().field("model", model).field("object", "list").key("usage").begin_object();
    out.field("prompt_tokens", prompt_tokens)
        .field("total_tokens", prompt_tokens)
        .end_object()
        .key("results");
  }
  out.begin_array();
  for (const size_t index : order) {
    out.begin_object().field("index", index).field(request.tei ? "score" : "relevance_score", scores[index]);
    if (request.return_documents && request.tei) out.field("text", request.documents[index]);
    if (request.return_documents && !request.tei)
      out.key("document").begin_object().field("text", request.documents[index]).end_object();
    out.end_object();
  }
  out.end_array();
  if (!request.tei) out.end_object();
  return out.take();
}

}  // namespace mlxcel::llama
