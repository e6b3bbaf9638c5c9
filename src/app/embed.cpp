// `embed`: vectors of texts, offline.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/options.h"

namespace mlxcel::app {
namespace {

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    dot += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return aa > 0 && bb > 0 ? dot / std::sqrt(aa * bb) : 0;
}

}  // namespace

int embed_command(int argc, char** argv) {
  ModelFlags model;
  std::vector<std::string> texts;
  std::string file, instruction, pooling;
  int dimensions = 0, max_length = 0, normalize = 2;
  bool json = false;
  CLI::App app("Turn texts into vectors.", "mlxcel embed");
  configure(app,
            "  mlxcel embed -m ./all-MiniLM-L6-v2 -p \"a cat\" -p \"a dog\"\n"
            "  mlxcel embed -m ./all-MiniLM-L6-v2 -f lines.txt --json\n");
  add_source_flags(app, model, false);
  app.add_option("-p,--prompt", texts, "a text; repeatable")->type_name("TEXT")->group("Input")->take_all();
  app.add_option("-f,--file", file, "a file with one text per line")->type_name("PATH")->group("Input");
  app.add_option("--instruction", instruction, "put before every text")->type_name("S")->group("Input");
  app.add_option("--max-length", max_length, "refuse longer texts (tokens); 0: the model's limit")
      ->type_name("N")
      ->group("Input");
  app.add_option("--dimensions", dimensions, "keep the first N and normalise again; 0: all")
      ->type_name("N")
      ->group("Vectors");
  app.add_option("--pooling", pooling, "mean, cls or last (default: the model's own)")
      ->check(CLI::IsMember({"mean", "cls", "last"}))
      ->group("Vectors");
  app.add_option("--embd-normalize", normalize, "2: Euclidean length 1; -1: as they come")
      ->check(CLI::IsMember({2, -1}))
      ->capture_default_str()
      ->group("Vectors");
  app.add_flag("--json", json, "one object with embeddings, shapes, prompt_tokens, similarity")
      ->group("Output");
  app.add_option("-t,--threads", model.threads, "worker threads; 0: the cores this process may use")
      ->type_name("N");
  app.add_option("--cpu-precision", model.cpu_precision, "high, fast or exact")->type_name("P");
  parse(app, argc, argv);
  if (model.model.empty()) throw UsageError("embed: -m, --model is required");
  if (dimensions < 0) throw UsageError(fmt::format("--dimensions {}: expected 0 or more", dimensions));
  if (max_length < 0) throw UsageError(fmt::format("--max-length {}: expected 0 or more", max_length));
  if (!file.empty()) {
    std::ifstream in(file);
    if (!in) throw UsageError(fmt::format("--file {}: cannot be opened", file));
    for (std::string line; std::getline(in, line);) texts.push_back(line);
  }
  if (texts.empty()) throw UsageError("embed: nothing to embed; give -p TEXT or -f FILE");

  const auto engine = load_engine(model, engine_options(model));
  EmbedRequest request;
  request.pooling = pooling;
  request.normalize = normalize == 2;
  request.dimensions = dimensions;
  for (size_t i = 0; i < texts.size(); ++i) {
    request.inputs.push_back(engine->tokenizer()->encode(instruction + texts[i], true));
    if (max_length > 0 && request.inputs.back().size() > static_cast<size_t>(max_length))
      fail(ErrorKind::invalid_request, "text {}: {} tokens, --max-length allows {}", i + 1,
           request.inputs.back().size(), max_length);
  }
  const Embeddings result = engine->embed(request);

  const auto& vectors = result.vectors;
  if (json) {
    nlohmann::ordered_json shapes = nlohmann::ordered_json::array(),
                           similarity = nlohmann::ordered_json::array();
    for (const auto& a : vectors) {
      shapes.push_back({a.size()});
      nlohmann::ordered_json row = nlohmann::ordered_json::array();
      for (const auto& b : vectors) row.push_back(cosine(a, b));
      similarity.push_back(row);
    }
    const nlohmann::ordered_json out = {{"embeddings", vectors},
                                        {"shapes", shapes},
                                        {"prompt_tokens", result.prompt_tokens},
                                        {"similarity", similarity}};
    fmt::print("{}\n", out.dump());
    return 0;
  }
  for (const auto& vector : vectors) {
    std::string line = "[";
    for (size_t i = 0; i < vector.size(); ++i) line += fmt::format("{}{}", i ? ", " : "", vector[i]);
    fmt::print("{}]\n", line);
  }
  if (vectors.size() > 1) {
    fmt::print("\ncosine similarity\n");
    for (const auto& a : vectors) {
      for (const auto& b : vectors) fmt::print("{:8.4f}", cosine(a, b));
      fmt::print("\n");
    }
  }
  return 0;
}

}  // namespace mlxcel::app
