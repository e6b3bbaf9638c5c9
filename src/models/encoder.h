// The encoder skeleton: every token of a row sees every other, nothing is remembered, hidden states come out.
// Owner: the loaded Model. Thread: model thread.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "checkpoint/config.h"
#include "models/skeleton.h"
#include "nn/norm.h"

namespace mlxcel {

/// h = norm(h + mixer(h)); h = norm(h + ffn(h))
struct PostNorm {
  Mixer mixer;
  Norm after_mixer;
  Ffn ffn;
  Norm after_ffn;
  array operator()(const array& h, Step& step) const;
};

class Encoder : public Skeleton {
 public:
  Encoder(NetworkFacts facts, std::function<array(const Step&)> embed);
  void add(Block block) { blocks_.push_back(std::move(block)); }
  /// A norm behind the last layer.
  void finish(Norm norm) { norm_ = std::move(norm); }
  /// What a classifier makes of each row: from all hidden states [tokens, hidden] to [rows, labels].
  using Classifier = std::function<array(const array& hidden, const Step& step)>;
  void classify(int labels, Classifier classifier);

  NetworkFacts facts() const override;
  array hidden(Step& step) const override;
  array scores(Step& step) const override;
  array logits(Step& step) const override;  // unsupported

 private:
  NetworkFacts facts_;
  std::function<array(const Step&)> embed_;
  std::vector<Block> blocks_;
  std::optional<Norm> norm_;
  Classifier classifier_;
};

/// Whether `architectures` names a sequence classifier.
bool is_classifier(const Config& config);
/// Its labels: num_labels, or as many as id2label has; 2 where neither is there, as transformers has it.
int label_count(const Config& config);
/// Each row's first token (or last) of [tokens, width].
array first_of_rows(const array& hidden, const Step& step);
array last_of_rows(const array& hidden, const Step& step);
/// The mean over each row's tokens, in order.
array mean_of_rows(const array& hidden, const Step& step);

}  // namespace mlxcel
