// Perplexity of a text, in windows. Thread: main; the engine's sinks only hand over.
// Failure: invalid_request where the text is shorter than one window.
#pragma once

#include <functional>
#include <string>

#include "engine/engine.h"

namespace mlxcel::app {

struct PerplexityOptions {
  int window = 512;
  int stride = 0;   // 0: the second half of each window is scored, as llama-perplexity does
  int chunks = -1;  // at most; -1: all
  int batch = 1;    // windows at once
  bool bos = true;  // where the tokenizer adds one
};

struct Perplexity {
  double ppl = 0, error = 0, nll = 0;
  long long tokens = 0;
  int chunks = 0;
};

/// `running` after each window.
Perplexity measure_perplexity(Engine& engine, const std::string& text, const PerplexityOptions& options,
                              const std::function<void(const Perplexity&, int of)>& running);

}  // namespace mlxcel::app
