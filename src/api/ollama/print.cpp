#include <fmt/format.h>

#include <ctime>

#include "api/json_writer.h"
#include "api/ollama/ollama.h"
#include "api/tools.h"

namespace mlxcel::ollama {
namespace {

void print_details(JsonWriter& out, const ModelDetails& model) {
  out.key("details")
      .begin_object()
      .field("parent_model", "")
      .field("format", model.format)
      .field("family", model.family);
  out.key("families").begin_array();
  if (!model.family.empty()) out.value(model.family);
  out.end_array().field("parameter_size", model.parameter_size);
  out.field("quantization_level", model.quantization).end_object();
}

void print_head(JsonWriter& out, const ModelDetails& model) {
  out.begin_object().field("name", model.name).field("model", model.name);
}

}  // namespace

std::string rfc3339(int64_t nanoseconds) {
  const std::time_t seconds = nanoseconds / 1'000'000'000;
  std::tm t{};
  gmtime_r(&seconds, &t);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                     t.tm_hour, t.tm_min, t.tm_sec, nanoseconds % 1'000'000'000);
}

std::string print_line(const Line& line) {
  JsonWriter out;
  out.begin_object().field("model", line.model).field("created_at", line.created_at);
  if (line.chat) {
    out.key("message").begin_object().field("role", "assistant").field("content", line.text);
    if (!line.thinking.empty()) out.field("thinking", line.thinking);
    if (!line.calls.empty()) {
      out.key("tool_calls").begin_array();
      int index = 0;
      for (const auto& call : line.calls) {
        out.begin_object().field("id", call.id).key("function").begin_object().field("index", index++);
        out.field("name", call.name)
            .key("arguments")
            .raw(whole_arguments(call.arguments))
            .end_object()
            .end_object();
      }
      out.end_array();
    }
    out.end_object();
  } else {
    out.field("response", line.text);
    if (!line.thinking.empty()) out.field("thinking", line.thinking);
  }
  if (line.scores && !line.scores->empty()) {
    JsonWriter scores;
    openai::print_chat_logprobs(scores, *line.scores);
    // The list alone: {"content": [...], "refusal": null}
    const std::string& text = scores.text();
    const size_t from = text.find('['), to = text.rfind(']');
    out.key("logprobs").raw(text.substr(from, to - from + 1));
  }
  out.field("done", line.figures != nullptr);
  if (line.figures) {
    const Figures& f = *line.figures;
    out.field("done_reason", line.done_reason);
    if (line.context) {
      out.key("context").begin_array();
      for (const int32_t id : *line.context) out.value(id);
      out.end_array();
    }
    out.field("total_duration", f.total)
        .field("load_duration", f.load)
        .field("prompt_eval_count", f.prompt_count);
    out.field("prompt_eval_duration", f.prompt)
        .field("eval_count", f.eval_count)
        .field("eval_duration", f.eval);
  }
  if (!line.warnings_json.empty()) out.key("warnings").raw(line.warnings_json);
  out.end_object();
  return out.take();
}

std::string print_embed(const std::string& model, const std::vector<std::vector<float>>& vectors,
                        const Figures& figures, bool older) {
  JsonWriter out;
  auto list = [&](const std::vector<float>& vector) {
    out.begin_array();
    for (const float x : vector) out.value(x);
    out.end_array();
  };
  out.begin_object();
  if (older) {
    out.key("embedding");
    list(vectors.at(0));
    out.end_object();
    return out.take();
  }
  out.field("model", model).key("embeddings").begin_array();
  for (const auto& vector : vectors) list(vector);
  out.end_array().field("total_duration", figures.total).field("load_duration", figures.load);
  out.field("prompt_eval_count", figures.prompt_count).end_object();
  return out.take();
}

std::string print_tags(const std::vector<ModelDetails>& models) {
  JsonWriter out;
  out.begin_object().key("models").begin_array();
  for (const auto& model : models) {
    print_head(out, model);
    out.field("modified_at", model.modified_at).field("size", model.size).field("digest", model.digest);
    print_details(out, model);
    out.end_object();
  }
  out.end_array().end_object();
  return out.take();
}

std::string print_ps(const std::vector<ModelDetails>& models) {
  JsonWriter out;
  out.begin_object().key("models").begin_array();
  for (const auto& model : models) {
    print_head(out, model);
    out.field("size", model.size).field("digest", model.digest);
    print_details(out, model);
    out.field("expires_at", model.expires_at)
        .field("size_vram", 0)
        .field("context_length", model.context)
        .end_object();
  }
  out.end_array().end_object();
  return out.take();
}

std::string print_show(const ShownModel& model) {
  JsonWriter out;
  out.begin_object().field("license", "").field("modelfile", "FROM " + model.details.name + "\n");
  out.field("parameters", model.parameters).field("template", model.chat_template);
  print_details(out, model.details);
  out.key("model_info").begin_object();
  for (const auto& [name, json] : model.info) out.key(name).raw(json);
  out.end_object().key("capabilities").begin_array();
  for (const auto& word : model.capabilities) out.value(word);
  out.end_array().field("modified_at", model.details.modified_at).end_object();
  return out.take();
}

}  // namespace mlxcel::ollama
