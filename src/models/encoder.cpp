#include "models/encoder.h"

#include "base/error.h"

namespace mlxcel {

array PostNorm::operator()(const array& h, Step& step) const {
  const array mixed = after_mixer(mixer(h, step, h));
  return after_ffn(ffn(mixed, mixed));
}

Encoder::Encoder(NetworkFacts facts, std::function<array(const Step&)> embed)
    : facts_(facts), embed_(std::move(embed)) {
  facts_.encoder = true;
}

NetworkFacts Encoder::facts() const {
  NetworkFacts facts = facts_;
  facts.layers = static_cast<int>(blocks_.size());
  return facts;
}

array Encoder::hidden(Step& step) const {
  array h = embed_(step);
  for (const Block& block : blocks_) h = block(h, step);
  return h;
}

array Encoder::logits(Step&) const {
  fail(ErrorKind::unsupported, "this model is an encoder: it gives embeddings, not text");
}

}  // namespace mlxcel
