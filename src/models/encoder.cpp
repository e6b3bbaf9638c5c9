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
  return norm_ ? (*norm_)(h) : h;
}

void Encoder::classify(int labels, Classifier classifier) {
  facts_.labels = labels;
  classifier_ = std::move(classifier);
}

array Encoder::scores(Step& step) const {
  if (!classifier_) return Skeleton::scores(step);
  return classifier_(hidden(step), step);
}

bool is_classifier(const Config& config) {
  for (const auto& name : config.get<std::vector<std::string>>("architectures", {}))
    if (name.ends_with("ForSequenceClassification")) return true;
  return false;
}

int label_count(const Config& config) {
  constexpr int most = 4096;
  if (config.has("num_labels")) return config.integer("num_labels", 1, most);
  const auto names = config.child("id2label").keys().size();
  if (names > static_cast<size_t>(most))
    fail(ErrorKind::bad_checkpoint, "{}: id2label: expected at most {} labels, found {}", config.where(),
         most, names);
  return names == 0 ? 2 : static_cast<int>(names);
}

namespace {

array rows_at(const array& hidden, const std::vector<int32_t>& at) {
  return mx::take(hidden, array(at.data(), {static_cast<int>(at.size())}, mx::int32), 0);
}

}  // namespace

array first_of_rows(const array& hidden, const Step& step) {
  std::vector<int32_t> at;
  for (const StepRow& row : step.rows()) at.push_back(row.first);
  return rows_at(hidden, at);
}

array last_of_rows(const array& hidden, const Step& step) {
  std::vector<int32_t> at;
  for (const StepRow& row : step.rows()) at.push_back(row.first + row.count - 1);
  return rows_at(hidden, at);
}

array mean_of_rows(const array& hidden, const Step& step) {
  // Along axis 0 of one row at a time: nothing depends on the rows beside it.
  std::vector<array> means;
  for (const StepRow& row : step.rows()) {
    const array own = mx::slice(hidden, {row.first, 0}, {row.first + row.count, hidden.shape(1)});
    means.push_back(mx::mean(own, 0, /*keepdims=*/true));
  }
  return means.size() == 1 ? means[0] : mx::concatenate(means, 0);
}

array Skeleton::scores(Step&) const {
  fail(ErrorKind::unsupported, "this model has no classifier: it gives no scores");
}

array Encoder::logits(Step&) const {
  fail(ErrorKind::unsupported, "this model is an encoder: it gives embeddings, not text");
}

}  // namespace mlxcel
