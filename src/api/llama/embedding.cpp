#include "api/llama/embedding.h"

#include "api/error.h"

namespace mlxcel::llama {

openai::EmbeddingRequest parse_embedding(std::string_view text, int vocab_size) {
  const JsonNode body = JsonNode::parse_request(text);
  auto content = body.find("content");
  if (!content) content = body.find("input");
  if (!content)
    fail_param("content", "content: expected a string, an array of strings, or token ids; found none");
  JsonWriter inner;
  inner.begin_object().key("input").raw(content->dump());
  if (const auto norm = body.integer("embd_normalize", -1, 64)) inner.field("embd_normalize", *norm);
  inner.end_object();
  auto out = openai::parse_embedding(inner.take(), vocab_size);
  body.string("model");
  body.string("encoding_format");
  out.ignored = body.unknown();
  return out;
}

std::string print_embeddings(const std::vector<std::vector<float>>& vectors) {
  JsonWriter out;
  out.begin_array();
  for (size_t i = 0; i < vectors.size(); ++i) {
    out.begin_object().field("index", i).key("embedding").begin_array().begin_array();
    for (const float x : vectors[i]) out.value(x);
    out.end_array().end_array().end_object();
  }
  out.end_array();
  return out.take();
}

void check_rerank(std::string_view text) {
  const JsonNode body = JsonNode::parse_request(text);
  const auto query = body.find("query");
  if (!query) fail_param("query", "\"query\" must be provided");
  if (query->kind() != JsonKind::string && query->kind() != JsonKind::object)
    fail_param("query", "\"query\" must be a string");
  auto documents = body.find("documents");
  if (!documents) documents = body.find("texts");
  if (!documents || documents->kind() != JsonKind::array || documents->size() == 0) {
    fail_param("documents", "\"documents\" must be a non-empty string array");
  }
  for (const auto& item : documents->items()) {
    if (item.kind() != JsonKind::string && item.kind() != JsonKind::object) {
      fail_param(item.path(), "\"documents\" must be a non-empty string array");
    }
  }
  body.integer("top_n", 1, INT32_MAX);
  body.boolean("return_documents");
  body.boolean("return_text");
}

}  // namespace mlxcel::llama
