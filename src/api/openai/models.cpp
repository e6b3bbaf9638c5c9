#include "api/openai/models.h"

#include <fmt/format.h>

#include "api/json_writer.h"

namespace mlxcel::openai {
namespace {

void print_list(JsonWriter& out, const char* name, const std::vector<std::string>& items) {
  out.key(name).begin_array();
  for (const auto& item : items) out.value(item);
  out.end_array();
}

void print_entry(JsonWriter& out, const ModelEntry& entry) {
  out.begin_object().field("id", entry.id).field("object", "model").field("created", entry.created);
  out.field("owned_by", "llamacpp");
  print_list(out, "aliases", entry.aliases);
  print_list(out, "tags", entry.tags);
  if (!entry.capabilities.empty()) print_list(out, "capabilities", entry.capabilities);
  out.key("meta").begin_object();
  out.key("vocab_type");
  entry.vocab_type.empty() ? out.null() : out.value(entry.vocab_type);
  out.field("n_vocab", entry.n_vocab).field("n_ctx_train", entry.n_ctx_train).field("n_ctx", entry.n_ctx);
  out.field("n_embd", entry.n_embd).field("n_params", entry.n_params).field("size", entry.size);
  out.field("format", entry.format).end_object();
  for (const auto& [name, json] : entry.more) out.key(name).raw(json);
  out.end_object();
}

std::string parameter_size(int64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", static_cast<double>(count) / 1e9);
  return fmt::format("{:.1f}M", static_cast<double>(count) / 1e6);
}

void print_ollama_entry(JsonWriter& out, const ModelEntry& entry) {
  out.begin_object().field("name", entry.id).field("model", entry.id).field("size", entry.size);
  print_list(out, "capabilities", entry.capabilities);
  out.key("details").begin_object().field("parent_model", "").field("format", entry.format);
  out.field("family", entry.family).key("families").begin_array().value(entry.family).end_array();
  out.field("parameter_size", parameter_size(entry.n_params));
  out.field("quantization_level", entry.quantization).end_object().end_object();
}

}  // namespace

std::string print_model(const ModelEntry& entry) {
  JsonWriter out;
  print_entry(out, entry);
  return out.take();
}

std::string print_models(const std::vector<ModelEntry>& entries) {
  JsonWriter out;
  out.begin_object().field("object", "list").key("data").begin_array();
  for (const auto& entry : entries) print_entry(out, entry);
  out.end_array().key("models").begin_array();
  for (const auto& entry : entries) print_ollama_entry(out, entry);
  out.end_array().end_object();
  return out.take();
}

}  // namespace mlxcel::openai
