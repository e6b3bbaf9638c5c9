// Inputs that every layer gets for itself: a table gives each token a vector per layer, the embedding's
// projection another; their sum is what a layer's gate works on. Made once a step, read layer by layer.
// Owner: value sharing the step's arrays. Thread: model thread. Reference: transformers Gemma3nTextModel.
#pragma once

#include <memory>
#include <optional>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/weights.h"
#include "state/step.h"

namespace mlxcel {

struct PerLayerOptions {
  int hidden = 0;
  int layers = 0;
  int width = 0;  // of each layer's input
  int vocab = 0;  // rows of the table; tokens beyond it read row 0
  float eps = 1e-6f;
};

class PerLayerInputs {
 public:
  /// Reads embed_tokens_per_layer, per_layer_model_projection, per_layer_projection_norm.
  PerLayerInputs(const Weights& w, const PerLayerOptions& options);
  /// At the step's start: h [tokens, hidden] are the (scaled) embeddings.
  void begin(const array& h, const Step& step) const;
  array layer(int i) const;  // [tokens, width]

 private:
  PerLayerOptions o_;
  Embedding table_;
  Linear projection_;
  RmsNorm norm_;
  std::shared_ptr<std::optional<array>> now_;  // [tokens, layers, width]
};

/// The end of a layer: y = norm(out(activation(gate(h)) * its input)).
class PerLayerGate {
 public:
  /// Reads per_layer_input_gate, per_layer_projection, post_per_layer_input_norm.
  PerLayerGate(const Weights& w, int hidden, int width, Activation activation, float eps);
  array operator()(const array& h, const array& input) const;

 private:
  Linear gate_, out_;
  RmsNorm norm_;
  Activation activation_;
};

/// sqrt(width), rounded to the type of a table as the published models compute it.
float root_in_type(const Weights& w, std::string_view table, int width);

}  // namespace mlxcel
