// An architecture: the names it answers to, how a checkpoint's tensors become what it asks for, and how it
// is built from them. One file each in models/arch; CMake makes the table from the folder.
// Owner: the table, for the process's life. Thread: any.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/rules.h"
#include "checkpoint/source.h"
#include "models/mtp.h"
#include "models/skeleton.h"
#include "nn/weights.h"

namespace mlxcel {

/// Rules as a list, or as a function of the checkpoint where a shape decides.
class WeightRules {
 public:
  using Function = std::function<std::vector<Rule>(const Config&, const Source&)>;
  WeightRules() = default;
  WeightRules(std::vector<Rule> rules)  // NOLINT(google-explicit-constructor)
      : function_([list = std::move(rules)](const Config&, const Source&) { return list; }) {}
  WeightRules(std::initializer_list<Rule> rules)
      : function_([list = std::vector<Rule>(rules)](const Config&, const Source&) { return list; }) {}
  template <class F>
    requires std::is_invocable_r_v<std::vector<Rule>, const F&, const Config&, const Source&>
  WeightRules(F function) : function_(std::move(function)) {}  // NOLINT(google-explicit-constructor)

  std::vector<Rule> operator()(const Config& config, const Source& source) const {
    return function_ ? function_(config, source) : std::vector<Rule>{};
  }

 private:
  Function function_;
};

/// A function from config and weights to a Decoder or an Encoder.
class Builder {
 public:
  Builder() = default;
  template <class Network>
    requires std::derived_from<Network, Skeleton>
  Builder(Network (*build)(const Config&, const Weights&))  // NOLINT(google-explicit-constructor)
      : function_([build](const Config& config, const Weights& weights) -> std::unique_ptr<Skeleton> {
          return std::make_unique<Network>(build(config, weights));
        }) {}
  using Function = std::function<std::unique_ptr<Skeleton>(const Config&, const Weights&)>;
  explicit Builder(Function function) : function_(std::move(function)) {}
  std::unique_ptr<Skeleton> operator()(const Config& config, const Weights& weights) const {
    return function_(config, weights);
  }

 private:
  Function function_;
};

/// How a family's block that predicts further is built, from rules of its own over the same checkpoint; a
/// checkpoint of which these rules leave nothing has none.
struct MtpArch {
  std::function<MtpBlock(const Config&, const Weights&)> build = {};
  WeightRules weights = {};
  /// Checkpoints that hold such a block alone: their model_type, and rules from their names to those that
  /// `build` asks for. Their config is the target's, in "text_config" or whole.
  std::vector<std::string> drafters = {};
  WeightRules drafter_weights = {};
};

struct Arch {
  std::vector<std::string> model_types;  // as config.json spells them
  std::vector<std::string> gguf = {};    // general.architecture names (mapped by checkpoint; for `arch`)
  std::string kind = "decoder";
  std::string reference;  // whose numbers are right
  Builder build = {};
  WeightRules weights = {};
  MtpArch mtp = {};
  std::string tiny;  // config.json of the tests' model: every feature, few numbers
};

struct NamedArch {
  std::string family;  // the file's name
  Arch arch;
};

/// Every file of models/arch, sorted by name.
const std::vector<NamedArch>& arch_table();

/// The architecture for a config. unsupported: "unknown model_type X; `mlxcel arch` lists what is supported"
/// or "model_type X is known but not supported yet".
const NamedArch& detect_arch(const Config& config);

/// Whether the specification names this model_type, supported here or not.
bool is_known_model_type(std::string_view model_type);

}  // namespace mlxcel
