// Where parts get their weights: a scope (a place in the checkpoint's tree of names) that checks shapes,
// packs matrices and hands out finished parts. Whether a weight is quantised, biased or fused with its
// neighbours is decided here, by name, once.
// Owner: value over shared books; lives while a model is built. Thread: the loading thread.
// Failure: bad_checkpoint "layers.3.….weight: expected [2048, 1024], checkpoint has [1024, 2048]".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/source.h"
#include "kernels/packed_file.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "state/store.h"
#include "tensor/tensor.h"

namespace mlxcel {

struct TensorShape {
  std::string name;
  Shape shape;
};

/// Whether a linear carries a bias: as the checkpoint has it, always, or never (a stray one is an error).
enum class Bias { as_stored, required, none };
inline Bias bias_if(bool wanted) { return wanted ? Bias::required : Bias::as_stored; }

/// What a build asked for and got.
struct WeightReport {
  std::vector<TensorShape> asked;  // names after the rules, in order
  long long parameters = 0;
  size_t bytes_held = 0;             // packed; under plan() as stored
  std::string label;                 // storage of most bytes: "Q4_1", "affine 4-bit g64", "BF16"
  mx::Dtype dtype = mx::float32;     // type of most bytes (of the scales where quantised)
  std::vector<std::string> unasked;  // nobody asked, no rule dropped
  std::vector<std::string> warnings;
};

class Weights {
 public:
  using Progress = std::function<void(size_t done, size_t total)>;
  /// Where packed matrices may come from in place of the checkpoint, and what is told of those that did not.
  struct Shelf {
    std::function<std::optional<kernels::Matrix>(std::span<const kernels::WeightForm> forms, bool gated)>
        find;
    std::function<void(const kernels::Matrix& matrix)> keep;
  };

  /// Loads: tensors are read, packed and let go one by one; `progress` counts stored bytes.
  static Weights load(std::shared_ptr<Source> source, StateLayout& layout, Progress progress = {},
                      Shelf shelf = {});
  /// Shapes only, from headers: memory estimates, inspect. The parts hold no data and must not run.
  static Weights plan(std::shared_ptr<Source> source, StateLayout& layout);
  /// No checkpoint at all: notes what an architecture asks for. `as_stored` biases are absent.
  static Weights record(StateLayout& layout);

  Weights operator/(std::string_view name) const;
  /// (i, scope "<name>.<i>") for each layer.
  std::vector<std::pair<int, Weights>> layers(std::string_view name, int count) const;
  const std::string& path() const { return path_; }
  StateLayout& layout() const;
  /// Rows are to keep nothing (encoders, embedders): attention then works on what stands in the step, where a
  /// token sees earlier ones, or with `two_way` all of its row.
  void keep_nothing(bool two_way) const;
  bool keeps_nothing() const;
  bool two_way() const;

  bool has(std::string_view name) const;
  /// y = x W^T (+ bias): "<name>.weight" [out, in], "<name>.bias" [out].
  Linear linear(std::string_view name, int out, int in, Bias bias = Bias::as_stored) const;
  /// Several projections of one input as one matrix, their outputs one after another (q, k, v).
  Linear fused(const std::vector<std::string>& names, const std::vector<int>& outs, int in,
               Bias bias = Bias::as_stored) const;
  /// A table as the output matrix `name` (tied heads); `table` is the table's name.
  Linear head_of(const Embedding& embedding, std::string_view name, std::string_view table) const;
  /// A gate and an up projection that share their input.
  GatedLinear gated(std::string_view gate, std::string_view up, int out, int in,
                    Bias bias = Bias::as_stored) const;
  /// Experts: "<name>.weight" [experts, out, in] and "<name>.bias" [experts, out]; several that read the same
  /// input as one; and the same with gate and up.
  Linear bank(std::string_view name, int experts, int out, int in, Bias bias = Bias::none) const;
  Linear fused_bank(const std::vector<std::string>& names, int experts, int out, int in,
                    Bias bias = Bias::none) const;
  GatedLinear gated_bank(std::string_view gate, std::string_view up, int experts, int out, int in) const;
  Embedding embedding(std::string_view name, int rows, int width, float scale = 1.0f) const;
  RmsNorm rms_norm(std::string_view name, int width, float eps, float offset = 0.0f) const;
  /// "<name>.weight" and "<name>.bias"; the older spelling gamma/beta is a rule's affair.
  LayerNorm layer_norm(std::string_view name, int width, float eps, Bias bias = Bias::required) const;
  /// A dense tensor as f32, by its full leaf name ("A_log", "conv1d.weight"). Axes of length one may be
  /// stored or not, anywhere.
  array tensor(std::string_view name, const Shape& shape) const;
  std::optional<array> optional_tensor(std::string_view name, const Shape& shape) const;
  /// A dense tensor of whole numbers from 0 to `below` - 1 (at most 2^24), stored as integers or as floats,
  /// as int32.
  array integers(std::string_view name, const Shape& shape, int below) const;
  /// A bias by its whole leaf name ("conv1d.bias").
  std::optional<array> bias(std::string_view name, int width, Bias wanted) const;

  /// The type the weight is stored in (of its scales where quantised); f32 under record().
  mx::Dtype dtype(std::string_view name) const;
  /// Counts what a part keeps beside the weights it was given (another form of one of them).
  void hold(size_t bytes) const;
  /// Leaves a tensor of the checkpoint unused on purpose.
  void leave_out(std::string_view name) const;
  void warn(std::string message) const;
  /// Reads a weight as stored, without packing and without counting it (comparisons).
  std::optional<Weight> peek(std::string_view name) const;

  WeightReport report() const;
  /// Where adapters may stand beside what was loaded so far.
  std::shared_ptr<AdapterBook> adapters() const;

 private:
  struct Books;
  Weights(std::shared_ptr<Books> books, std::string path)
      : books_(std::move(books)), path_(std::move(path)) {}
  std::string full(std::string_view name) const;
  enum class Fit { exact, but_for_ones };
  /// Checks a weight and enters it in the books; what the checkpoint says of it, nothing under record().
  std::optional<WeightInfo> enter(const std::string& name, const Shape& shape, Fit fit = Fit::exact) const;
  Weight read(const std::string& name, const Shape& shape, const WeightInfo& info) const;
  void count(const WeightInfo& info) const;
  /// Both; nothing under plan() and record().
  std::optional<Weight> take(const std::string& name, const Shape& shape, Fit fit = Fit::exact) const;
  /// Weights entered one after another as one matrix, from the shelf where it has it; none under plan() and
  /// record().
  class Group;
  std::optional<array> bias_of(const std::string& name, int out, Bias bias) const;
  std::shared_ptr<const AdapterSite> site(const std::vector<std::string>& names, const std::vector<int>& outs,
                                          int in, int experts = 0) const;

  std::shared_ptr<Books> books_;
  std::string path_;
};

/// A dense weight's values as f32, without MLX operations (any thread).
array to_float32(const Weight& weight);

}  // namespace mlxcel
