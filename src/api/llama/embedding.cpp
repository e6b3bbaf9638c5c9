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

}  // namespace mlxcel::llama
