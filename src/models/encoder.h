// The encoder skeleton: every token of a row sees every other, nothing is remembered, hidden states come out.
// Owner: the loaded Model. Thread: model thread.
#pragma once

#include <functional>
#include <vector>

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

  NetworkFacts facts() const override;
  array hidden(Step& step) const override;
  array logits(Step& step) const override;  // unsupported

 private:
  NetworkFacts facts_;
  std::function<array(const Step&)> embed_;
  std::vector<Block> blocks_;
};

}  // namespace mlxcel
