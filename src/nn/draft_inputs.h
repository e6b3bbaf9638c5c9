// Text diffusion by drafts that are drawn whole: what a model reads in place of a draft's tokens, and how
// their layers differ from those of known tokens. Owner: value. Thread: model thread. Reference: transformers
// DiffusionGemmaDecoderModel, DiffusionGemmaSelfConditioning.
#pragma once

#include <string_view>

#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

/// A table read the other way: rows weighed by x, [tokens, rows] -> [tokens, width]. In 16 bits where the
/// table is quantised; its memory comes beside the table's own.
Linear table_sum(const Weights& w, std::string_view table, int rows, int width);

struct DraftInputOptions {
  int hidden = 0;
  int width = 0;
  int vocab = 0;
  Activation activation = Activation::gelu_tanh;
  float eps = 1e-6f;
  float scale = 1.0f;  // of embeddings
};

/// norm(embedding + mlp(norm(what the draft before expected))), over the tokens of drafts. Reads
/// self_conditioning.{pre_norm, gate_proj, up_proj, down_proj} and embed_tokens.
class DraftInputs {
 public:
  DraftInputs(const Weights& w, const DraftInputOptions& options);
  /// h: the step's scaled embeddings [tokens, hidden].
  array operator()(const array& h, const Step& step) const;

 private:
  DraftInputOptions o_;
  Linear expected_;
  RmsNorm norm_;
  GatedMlp mlp_;
};

/// `draft` for the tokens of drafts, `known` for the others: [1] both, or [tokens, 1] where they differ.
array by_draft(const Step& step, const array& known, const array& draft);

}  // namespace mlxcel
