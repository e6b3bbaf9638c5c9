// A loaded model as the engine sees it: one forward signature for every family (docs/adr/0001).
// Owner: the engine. Thread: model thread, but for info() and the loading functions (any one thread).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/adapter_files.h"
#include "checkpoint/checkpoint.h"
#include "models/packed_cache.h"
#include "models/skeleton.h"
#include "nn/weights.h"
#include "state/step.h"
#include "state/store.h"

namespace mlxcel {

struct ModelInfo {
  std::string model_type;     // as the config spells it
  std::string family;         // the architecture file's name
  std::string weights_label;  // "Q4_1", "affine 4-bit g64", "BF16"
  int vocab_size = 0;
  int hidden = 0;
  int layers = 0;
  int max_positions = 0;                     // the model's own window; 0: unbounded (recurrent)
  bool encoder = false;                      // rows keep nothing, hidden states out (bert, embedders)
  int labels = 0;                            // of a classifier over whole rows (rerankers); 0: none
  mx::Dtype checkpoint_dtype = mx::float32;  // decides what KV "fp16" means
  size_t weight_bytes = 0;                   // as held
  long long parameters = 0;
  std::vector<std::string> warnings;
  Diffusion diffusion = {};  // text diffusion
};

class MtpHead;

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const StateLayout& layout() const = 0;
  /// Lazy logits [wanted, vocab] f32 of a sealed step; [0, vocab] where none are wanted, still to be
  /// evaluated for the layers' sake. Encoders throw unsupported.
  virtual array logits(Step& step) = 0;
  /// Lazy last hidden states [T, hidden] f32, after the final norm.
  virtual array hidden(Step& step) = 0;
  /// Lazy scores [rows, labels] f32 before any sigmoid or softmax. Throws unsupported where info().labels is
  /// 0.
  virtual array scores(Step& step);
  /// Both of one evaluation: logits [wanted, vocab], hidden [T, hidden]. Encoders throw unsupported.
  virtual std::pair<array, array> logits_and_hidden(Step& step);
  /// Logits, and the outputs of these layers (from 0, ascending) side by side, [T, layers * hidden].
  virtual std::pair<array, array> logits_and_layers(Step& step, std::span<const int> layers);
  /// What a drafter beside this model borrows; none where there is no such thing.
  virtual const Embedding* table() const { return nullptr; }
  virtual const Linear* head() const { return nullptr; }
  /// The checkpoint's own block that predicts further; none where family or checkpoint has none.
  virtual std::shared_ptr<const MtpHead> mtp() const { return nullptr; }
  /// An adapter for rows of this model. bad_checkpoint naming pairs that fit nothing here. Any thread.
  virtual std::shared_ptr<const Adapter> adapter(const AdapterFiles& files) const;
};

struct FusedAdapter {
  AdapterFiles files;
  float scale = 1.0f;
};

struct LoadOptions {
  std::function<void(size_t done, size_t total)> progress = {};  // bytes; called on the loading thread
  std::vector<FusedAdapter> fuse = {};  // baked into the weights; quantised ones become dense
  /// A decoder whose rows keep nothing: for embeddings, or for the logits of a last token (rerankers).
  bool keeps_nothing = false;
  /// Where load_model() looks for packed weights, and leaves them; nowhere.
  PackedCacheOptions packed = {};
};

/// Detects the architecture, applies its rules, builds its parts (packing weights tensor by tensor).
/// Errors: unsupported "unknown model_type X; `mlxcel arch` lists what is supported"; bad_checkpoint
/// naming tensors that are missing, misshapen, or asked for by nobody.
std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const LoadOptions& options = {});

/// The same from a config and any source of tensors in the published layout (tests, goldens).
std::unique_ptr<Model> build_model(const Config& config, std::shared_ptr<Source> source,
                                   const LoadOptions& options = {});

/// What a model would be, from headers alone: nothing is read or packed; `weight_bytes` is as stored.
struct ModelPlan {
  ModelInfo info;
  StateLayout layout;
  std::vector<TensorShape> tensors;  // names after the rules
  std::vector<std::string> rules;    // as inspect prints them
};
ModelPlan plan_model(const Config& config, std::shared_ptr<Source> source);

/// The catalogue behind `mlxcel arch`.
struct ArchEntry {
  std::string family;
  std::vector<std::string> model_types;
  std::vector<std::string> gguf;
  std::string kind;       // "decoder", "encoder"
  std::string reference;  // "transformers Qwen3MoeForCausalLM"
  std::string tiny;       // config.json text of the tests' model
};
std::vector<ArchEntry> architectures();

}  // namespace mlxcel
