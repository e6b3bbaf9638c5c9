// `rerank`: how well documents answer a query, offline.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/commands.h"
#include "app/flags/shared.h"
#include "app/options.h"
#include "engine/front/rerank.h"

namespace mlxcel::app {
namespace {

struct Ranked {
  std::vector<double> scores;  // in the documents' order
  int prompt_tokens = 0;

  std::vector<size_t> order() const {
    std::vector<size_t> out(scores.size());
    std::iota(out.begin(), out.end(), size_t{0});
    std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    return out;
  }
};

Ranked rank(Engine& engine, const std::string& query, const std::vector<std::string>& documents,
            const std::string& instruction, size_t together) {
  Ranked out;
  for (size_t first = 0; first < documents.size(); first += together) {
    const auto begin = documents.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(std::min(together, documents.size() - first));
    const Scores scores = engine.score(rerank_request(engine, query, {begin, end}, instruction));
    out.prompt_tokens += scores.prompt_tokens;
    // A model with answers gives their difference alone.
    for (const auto& each : scores.scores) out.scores.push_back(relevance(each));
  }
  return out;
}

/// What is shown of a document: one line, never half a character.
std::string first_line(const std::string& text) {
  size_t end = std::min({text.find('\n'), text.size(), size_t{72}});
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

int rerank_command(int argc, char** argv) {
  FlagState state;
  ModelFlags& model = state.serve.model;
  std::string query, instruction, query_image;
  std::vector<std::string> documents, images;
  int top = 0, batch = 8;
  bool json = false;
  CLI::App app("Order documents by how well they answer a query.", "mlxcel rerank");
  configure(
      app,
      "  mlxcel rerank -m ./bge-reranker-base -q \"what is a panda?\" -d \"a bear of China\" -d \"a car\"\n"
      "  mlxcel rerank -m Qwen/Qwen3-Reranker-0.6B -q \"capital of France\" -d Paris -d Rome --json\n");
  add_source_flags(app, model, false);
  app.add_option("-q,--query", query, "what is looked for")->type_name("TEXT")->group("Input");
  app.add_option("-d,--document", documents, "a document; repeatable")
      ->type_name("TEXT")
      ->take_all()
      ->group("Input");
  app.add_option("--image", images, "a document that is an image; repeatable (models that see)")
      ->type_name("FILE")
      ->take_all()
      ->group("Input");
  app.add_option("--query-image", query_image, "a query that is an image (models that see)")
      ->type_name("FILE")
      ->group("Input");
  app.add_option("--instruction", instruction, "what counts as an answer, for models that are told")
      ->type_name("S")
      ->group("Input");
  app.add_option("--max-length", model.context,
                 "tokens of a query and a document together; 0: the model's limit")
      ->type_name("N")
      ->group("Input");
  app.add_option("--top-n", top, "rank only the best N; 0: all")->type_name("N")->group("Output");
  app.add_option("--batch-size", batch, "documents evaluated together; 0: all")
      ->type_name("N")
      ->capture_default_str()
      ->group("Run time");
  SharedFlags shared(app, state);
  shared.add("Run time", {{"--threads"}, {"--cpu-precision"}});
  app.add_flag("--json", json, "one object with scores, ranking, kind, prompt_tokens")->group("Output");
  parse(app, argc, argv);
  if (model.model.empty()) throw UsageError("rerank: -m, --model is required");
  if (query.empty() && query_image.empty()) throw UsageError("rerank: what is looked for? give -q TEXT");
  if (documents.empty() && images.empty()) throw UsageError("rerank: no documents; give -d TEXT");
  for (const auto& [value, flag] :
       {std::pair{top, "--top-n"}, {batch, "--batch-size"}, {model.context, "--max-length"}})
    if (value < 0) throw UsageError(fmt::format("{} {}: expected 0 or more", flag, value));

  refuse_media("--image", images);
  refuse_media("--query-image", query_image.empty() ? std::vector<std::string>{} : std::vector{query_image});

  EngineOptions options = engine_options(model);
  options.reranker = true;
  options.prompt_cache = false;
  const auto engine = load_engine(model, options);
  const ModelInfo& info = engine->info();
  const Ranked ranked = rank(*engine, query, documents, instruction,
                             batch == 0 ? documents.size() : static_cast<size_t>(batch));

  std::vector<size_t> order = ranked.order();
  if (top > 0) order.resize(std::min(order.size(), static_cast<size_t>(top)));
  if (json) {
    nlohmann::ordered_json ranking = nlohmann::ordered_json::array();
    for (const size_t i : order) ranking.push_back({{"index", i}, {"score", ranked.scores[i]}});
    const nlohmann::ordered_json out = {{"scores", ranked.scores},
                                        {"ranking", ranking},
                                        {"kind", info.labels > 0 ? "cross-encoder" : "generative"},
                                        {"prompt_tokens", ranked.prompt_tokens}};
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  for (const double score : ranked.scores) fmt::print("{:.6f}\n", score);
  fmt::print("\nranking\n");
  for (size_t place = 0; place < order.size(); ++place)
    fmt::print("{:4}. [{}] {:.6f}  {}\n", place + 1, order[place], ranked.scores[order[place]],
               first_line(documents[order[place]]));
  return 0;
}

}  // namespace mlxcel::app
