// What the generated architecture tests share: an architecture's tiny checkpoint in the published layout,
// made of synthetic values, and ways to run a model over rows.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/arch.h"
#include "models/model.h"
#include "models/synthetic.h"

namespace mlxcel::archtest {

using Tokens = std::vector<int32_t>;
using Rows = std::vector<std::vector<float>>;  // one of logits (encoders: hidden states) for each token

Config tiny_config(const NamedArch& entry);
/// What an architecture asks for on its tiny config, named and shaped as checkpoints publish it: its rules
/// undone, last to first.
std::vector<TensorShape> published(const NamedArch& entry);
std::shared_ptr<Source> tiny_source(const NamedArch& entry);

/// A source seen through a change of one weight's values (keeps shapes).
using Change = std::function<void(const std::string& name, std::vector<float>& values)>;
std::shared_ptr<Source> changed(std::shared_ptr<Source> source, Change change);
/// Without one tensor.
std::shared_ptr<Source> without(std::shared_ptr<Source> source, const std::string& name);
/// With one more.
std::shared_ptr<Source> with(std::shared_ptr<Source> source, Weight extra);
/// Whose matrices (all but convolutions) are 4-bit affine; others stay dense.
std::shared_ptr<Source> quantised(std::shared_ptr<Source> source, int group);
/// Quantised weights as dense ones of the same values.
std::shared_ptr<Source> dequantised_source(std::shared_ptr<Source> source);

/// `count` token ids of a fixed pattern; another `seed`, other ids.
Tokens some_tokens(int vocab, int count, int seed = 0);

/// Evaluates a sealed step's logits, or hidden states for encoders, and commits it.
Rows finish(Model& model, Step& step);
/// One row's answers for every token, fed in chunks (the rest in one).
Rows run(Model& model, const Tokens& tokens, const std::vector<int>& chunks = {}, mx::Dtype kv = mx::float32);

/// Largest difference; infinite for other sizes or NaN.
float distance(const Rows& a, const Rows& b);
/// The same on log-probabilities above -10.
float log_distance(const Rows& a, const Rows& b);

}  // namespace mlxcel::archtest
