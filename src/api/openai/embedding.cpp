#include "api/openai/embedding.h"

#include <cmath>

#include "api/error.h"
#include "base/base64.h"

namespace mlxcel::openai {
namespace {

constexpr size_t kMaxInputs = 2048;

/// {"content": […]} or an array of parts: the text of it.
std::string text_of_parts(const JsonNode& node) {
  const auto parts = node.kind() == JsonKind::object ? node.find("content") : std::optional(node);
  if (!parts) fail_param(node.path(), "{}: expected content", node.path());
  if (parts->kind() == JsonKind::string) return parts->string();
  std::string out;
  for (const auto& part : parts->items()) {
    if (part.kind() != JsonKind::object) part.wrong("an object with a type");
    const auto type = part.string("type").value_or("");
    if (type == "image_url") {
      refuse_param(501, "not_supported_error", part.path(), "{}: this model takes text only", part.path());
    }
    const auto text = part.string("text");
    if (type != "text" || !text) fail_param(part.path(), "{}: expected a part of type text", part.path());
    if (!out.empty()) out += '\n';
    out += *text;
  }
  return out;
}

void add_text(EmbeddingRequest& out, std::string text, const std::string& path) {
  if (text.empty()) fail_param(path, "{}: the text is empty", path);
  out.inputs.emplace_back(std::move(text));
  out.paths.push_back(path);
}

void add_ids(EmbeddingRequest& out, const JsonNode& list, int vocab_size) {
  if (list.size() == 0) fail_param(list.path(), "{}: expected at least one token id", list.path());
  out.inputs.emplace_back(list.integers(0, vocab_size - 1));
  out.paths.push_back(list.path());
}

bool is_part(const JsonNode& item) { return item.kind() == JsonKind::object && item.has("type"); }

void parse_inputs(const JsonNode& body, int vocab_size, EmbeddingRequest& out) {
  const auto node = body.find("input");
  if (!node) fail_param("input", "input: expected a string, an array of strings, or token ids; found none");
  if (node->kind() == JsonKind::string) return add_text(out, node->string(), "input");
  if (node->kind() == JsonKind::object) return add_text(out, text_of_parts(*node), "input");
  if (node->kind() != JsonKind::array) node->wrong("a string, an array of strings, or token ids");
  if (node->size() == 0) fail_param("input", "input: expected at least one text, found an empty array");
  if (node->first_kind() == JsonKind::number) return add_ids(out, *node, vocab_size);
  if (node->size() > kMaxInputs)
    fail_param("input", "input: at most {} texts, found {}", kMaxInputs, node->size());
  const auto items = node->items();
  if (is_part(items.front())) return add_text(out, text_of_parts(*node), "input");
  for (const auto& item : items) {
    switch (item.kind()) {
      case JsonKind::string:
        add_text(out, item.string(), item.path());
        break;
      case JsonKind::object:
        add_text(out, text_of_parts(item), item.path());
        break;
      case JsonKind::array:
        add_ids(out, item, vocab_size);
        break;
      default:
        item.wrong("a string or an array of token ids");
    }
  }
}

}  // namespace

EmbeddingRequest parse_embedding(std::string_view text, int vocab_size) {
  const JsonNode body = JsonNode::parse_request(text);
  EmbeddingRequest out;
  out.model = body.string("model");
  parse_inputs(body, vocab_size, out);
  if (const auto format = body.string("encoding_format")) {
    if (*format != "float" && *format != "base64") {
      fail_param("encoding_format", "encoding_format: expected float or base64, found \"{}\"",
                 format->substr(0, 64));
    }
    out.base64 = *format == "base64";
  }
  out.dimensions = static_cast<int>(body.integer("dimensions", 1, INT32_MAX).value_or(0));
  if (const auto norm = body.integer("embd_normalize", -1, 64)) out.normalize = static_cast<int>(*norm);
  if (const auto instruction = body.string("instruction"); instruction && !instruction->empty()) {
    fail_param("instruction", "instruction: this model takes none");
  }
  body.string("user");
  out.ignored = body.unknown();
  return out;
}

void normalize_embedding(std::vector<float>& vector, int norm) {
  if (norm < 0) return;
  double sum = 0;
  for (const float x : vector) {
    const double magnitude = std::abs(static_cast<double>(x));
    if (norm == 0) {
      sum = std::max(sum, magnitude);
    } else if (norm == 2) {
      sum += magnitude * magnitude;
    } else {
      sum += norm == 1 ? magnitude : std::pow(magnitude, norm);
    }
  }
  if (norm == 0) sum /= 32760.0;  // the range of a 16-bit integer, as llama.cpp has it
  if (norm == 2) sum = std::sqrt(sum);
  if (norm > 2) sum = std::pow(sum, 1.0 / norm);
  if (sum <= 0) return;
  for (float& x : vector) x = static_cast<float>(x / sum);
}

std::string print_embeddings(const std::vector<std::vector<float>>& vectors, bool base64,
                             const std::string& model, int prompt_tokens) {
  JsonWriter out;
  out.begin_object().field("object", "list").key("data").begin_array();
  for (size_t i = 0; i < vectors.size(); ++i) {
    out.begin_object().field("object", "embedding").field("index", i).key("embedding");
    if (base64) {
      out.value(base64_floats(vectors[i]));
    } else {
      out.begin_array();
      for (const float x : vectors[i]) out.value(x);
      out.end_array();
    }
    out.key("shape").begin_array().value(vectors[i].size()).end_array().end_object();
  }
  out.end_array().field("model", model).key("usage").begin_object();
  out.field("prompt_tokens", prompt_tokens).field("total_tokens", prompt_tokens).end_object().end_object();
  return out.take();
}

}  // namespace mlxcel::openai
