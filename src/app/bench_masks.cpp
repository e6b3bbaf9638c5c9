#include "app/bench_masks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "sample/logits.h"
#include "text/grammar/grammar.h"

namespace mlxcel::app {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Constraint::Kind;

struct Case {
  const char* name;
  Constraint constraint;
  std::string text;  // that the grammar allows
};

std::vector<Case> cases() {
  const std::string record =
      R"({"name": "Ada Lovelace", "age": 36, "tags": ["poet", "engine", "numbers"], "address": {"street": )"
      R"("St James's Square 12", "city": "London"}, "active": true, "score": 0.75})";
  const std::string schema =
      R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
          "tags": {"type": "array", "items": {"enum": ["poet", "engine", "numbers", "mills"]}},
          "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                      "required": ["street", "city"], "additionalProperties": false},
          "active": {"type": "boolean"}, "score": {"type": "number"}},
          "required": ["name", "age", "tags", "address", "active", "score"], "additionalProperties": false})";
  std::string lines, sum;
  for (int i = 0; i < 12; ++i) {
    lines += fmt::format("2026-0{}-1{} entry{}\n", 1 + i % 9, i % 10, i);
    sum += fmt::format("{}({} {} {})", i == 0 ? "" : " + ", 10 * i + 1, i % 2 == 0 ? "*" : "-", i + 2);
  }
  return {
      {"json object", {.kind = Kind::json_object}, record},
      {"json schema", {.kind = Kind::json_schema, .text = schema}, record},
      {"regex", {.kind = Kind::regex, .text = R"(([0-9]{4}-[0-9]{2}-[0-9]{2} [a-z]+[0-9]*\n){1,20})"}, lines},
      {"gbnf",
       {.kind = Kind::gbnf,
        .text = "root ::= term (\" + \" term)*\nterm ::= number | \"(\" number \" \" [-*/] \" \" number "
                "\")\"\nnumber ::= [0-9]+\n"},
       sum},
      {"lark",
       {.kind = Kind::lark,
        .text = "start: term (\" + \" term)*\nterm: NUMBER | \"(\" NUMBER \" \" OP \" \" NUMBER "
                "\")\"\nNUMBER: /[0-9]+/\nOP: /[-*\\/]/\n"},
       sum}};
}

double microseconds_since(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - from).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Figure {
  const char* name;
  double compile_ms = 0.0;
  size_t tokens = 0;
  double first = 0.0;  // a token's mask, the first time that the text is followed: the mean
  double mask = 0.0;   // later: median, mean and the slowest
  double mean = 0.0;
  double worst = 0.0;
  double apply = 0.0;  // laying it over a row of logits
};

Figure measured(const Grammars& grammars, const Tokenizer& tokenizer, int vocab, const Case& one,
                int repetitions) {
  Figure out{.name = one.name};
  const auto begun = std::chrono::steady_clock::now();
  const auto grammar = grammars.compile(one.constraint);
  out.compile_ms = microseconds_since(begun) / 1e3;
  const std::vector<TokenId> tokens = tokenizer.encode(one.text, false, false);
  out.tokens = tokens.size();
  std::vector<float> logits(static_cast<size_t>(vocab), 1.0f);
  std::vector<double> masks, applied;
  for (int run = 0; run <= repetitions; ++run) {
    Matcher matcher = grammar->matcher();
    double sum = 0.0;
    for (const TokenId token : tokens) {
      const auto before = std::chrono::steady_clock::now();
      const auto mask = matcher.mask();
      const double took = microseconds_since(before);
      sum += took;
      if (run > 0) masks.push_back(took);
      std::fill(logits.begin(), logits.end(), 1.0f);
      const auto laid = std::chrono::steady_clock::now();
      logits::apply_mask(logits, mask);
      applied.push_back(microseconds_since(laid));
      matcher.accept(token);
    }
    if (run == 0) out.first = sum / static_cast<double>(std::max<size_t>(tokens.size(), 1));
  }
  for (const double value : masks) out.mean += value / static_cast<double>(masks.size());
  out.worst = masks.empty() ? 0.0 : *std::max_element(masks.begin(), masks.end());
  out.mask = median(std::move(masks));
  out.apply = median(std::move(applied));
  return out;
}

Json json_of(const Figure& f, int vocab) {
  return {{"grammar", f.name},          {"n_vocab", vocab},       {"n_tokens", f.tokens},
          {"compile_ms", f.compile_ms}, {"first_us", f.first},    {"mask_us", f.mask},
          {"mask_mean_us", f.mean},     {"mask_max_us", f.worst}, {"apply_us", f.apply}};
}

}  // namespace

int bench_masks(const ModelFlags& model, int repetitions, const std::string& format) {
  const Checkpoint checkpoint = open_checkpoint(resolve(model));
  const auto tokenizer = Tokenizer::load(checkpoint);
  if (!tokenizer) fail(ErrorKind::unsupported, "{}: there is no tokenizer here", checkpoint.path.string());
  const int vocab = tokenizer->vocab_size();
  std::vector<TokenId> eos = checkpoint.eos_ids;
  if (const auto own = tokenizer->eos(); eos.empty() && own) eos.push_back(*own);
  const Grammars grammars(tokenizer, vocab, eos);
  Json all = Json::array();
  if (format == "md")
    fmt::print(
        "{} tokens of vocabulary\n\n"
        "| grammar | compiled in ms | tokens | first time us | mask us | mean | slowest | over the logits us "
        "|\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        vocab);
  if (format == "csv")
    fmt::print("grammar,n_vocab,compile_ms,n_tokens,first_us,mask_us,mask_mean_us,mask_max_us,apply_us\n");
  for (const Case& one : cases()) {
    const Figure f = measured(grammars, *tokenizer, vocab, one, repetitions);
    if (format == "md")
      fmt::print("| {} | {:.1f} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |\n", f.name, f.compile_ms,
                 f.tokens, f.first, f.mask, f.mean, f.worst, f.apply);
    else if (format == "csv")
      fmt::print("\"{}\",{},{:.3f},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f}\n", f.name, vocab, f.compile_ms,
                 f.tokens, f.first, f.mask, f.mean, f.worst, f.apply);
    else if (format == "jsonl")
      fmt::print("{}\n", json_of(f, vocab).dump());
    all.push_back(json_of(f, vocab));
  }
  if (format == "json") fmt::print("{}\n", all.dump(2));
  return 0;
}

}  // namespace mlxcel::app
