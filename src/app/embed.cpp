// `embed`: vectors of texts, offline.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/commands.h"
#include "app/flags/shared.h"
#include "app/options.h"

namespace mlxcel::app {
namespace {

/// llama.cpp's norms: -1 none, 0 the largest magnitude becomes 32760 (16-bit), 1 taxicab, 2 Euclidean, p
/// above.
void normalise(std::vector<float>& vector, int norm) {
  if (norm < 0) return;
  double sum = 0;
  for (const float x : vector) {
    const double size = std::abs(double{x});
    sum = norm == 0 ? std::max(sum, size) : sum + std::pow(size, norm);
  }
  if (norm == 0) sum /= 32760.0;
  if (norm > 0) sum = std::pow(sum, 1.0 / norm);
  if (sum > 0)
    for (float& x : vector) x = static_cast<float>(x / sum);
}

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
  FlagState state;
  ModelFlags& model = state.serve.model;
  std::vector<std::string> texts, images;
  std::string file, instruction, pooling;
  int dimensions = 0, max_length = 0, batch = 0, normalize = 2;
  bool json = false;
  CLI::App app("Turn texts into vectors.", "mlxcel embed");
  configure(app,
            "  mlxcel embed -m ./all-MiniLM-L6-v2 -p \"a cat\" -p \"a dog\"\n"
            "  mlxcel embed -m ./all-MiniLM-L6-v2 -f lines.txt --json\n");
  add_source_flags(app, model, false);
  app.add_option("-p,--prompt", texts, "a text; repeatable")->type_name("TEXT")->group("Input")->take_all();
  app.add_option("-f,--file", file, "a file with one text per line")->type_name("PATH")->group("Input");
  app.add_option("--image", images, "an image; repeatable (models that see)")
      ->type_name("FILE")
      ->group("Input")
      ->take_all();
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
  app.add_option("--embd-normalize", normalize,
                 "-1: as they come; 0: largest 32760; 1: taxicab; 2: Euclidean; p: p-norm")
      ->type_name("N")
      ->check(CLI::Range(-1, 64))
      ->capture_default_str()
      ->group("Vectors");
  app.add_option("--batch-size", batch, "texts evaluated together; 0: all")->type_name("N")->group("Vectors");
  app.add_flag("--json", json, "one object with embeddings, shapes, prompt_tokens, similarity")
      ->group("Output");
  SharedFlags shared(app, state);
  shared.add("Run time", {{"--threads"}, {"--cpu-precision"}});
  parse(app, argc, argv);
  if (model.model.empty()) throw UsageError("embed: -m, --model is required");
  if (dimensions < 0) throw UsageError(fmt::format("--dimensions {}: expected 0 or more", dimensions));
  if (batch < 0) throw UsageError(fmt::format("--batch-size {}: expected 0 or more", batch));
  if (max_length < 0) throw UsageError(fmt::format("--max-length {}: expected 0 or more", max_length));
  if (!file.empty()) {
    std::istringstream in(text_file(file, "--file", size_t{64} << 20));
    for (std::string line; std::getline(in, line);) {
      if (line.ends_with('\r')) line.pop_back();
      texts.push_back(line);
    }
  }
  refuse_media("--image", images);
  if (texts.empty()) throw UsageError("embed: nothing to embed; give -p TEXT or -f FILE");

  const auto engine = load_engine(model, engine_options(model));
  std::vector<std::vector<TokenId>> inputs;
  for (size_t i = 0; i < texts.size(); ++i) {
    inputs.push_back(engine->tokenizer()->encode(instruction + texts[i], true));
    if (max_length > 0 && inputs.back().size() > static_cast<size_t>(max_length))
      fail(ErrorKind::invalid_request, "text {}: {} tokens, --max-length allows {}", i + 1,
           inputs.back().size(), max_length);
  }
  const size_t together = batch == 0 ? inputs.size() : static_cast<size_t>(batch);
  Embeddings result;
  for (size_t first = 0; first < inputs.size(); first += together) {
    EmbedRequest request;
    request.pooling = pooling;
    request.normalize = normalize == 2;
    request.dimensions = normalize == 2 ? dimensions : 0;
    for (size_t i = first; i < std::min(first + together, inputs.size()); ++i)
      request.inputs.push_back(inputs[i]);
    Embeddings part = engine->embed(request);
    result.prompt_tokens += part.prompt_tokens;
    for (auto& vector : part.vectors) {
      if (normalize != 2) {
        if (dimensions > 0 && static_cast<size_t>(dimensions) < vector.size())
          vector.resize(static_cast<size_t>(dimensions));
        normalise(vector, normalize);
      }
      result.vectors.push_back(std::move(vector));
    }
  }

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
