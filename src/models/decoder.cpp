#include "models/decoder.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {

bool same_bytes(const std::optional<array>& a, const std::optional<array>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->dtype() == b->dtype() && a->nbytes() == b->nbytes() && a->flags().row_contiguous &&
         b->flags().row_contiguous && std::memcmp(a->data<char>(), b->data<char>(), a->nbytes()) == 0;
}

bool same_weight(const Weight& a, const Weight& b) {
  return a.shape == b.shape && a.format == b.format && same_bytes(a.data, b.data) &&
         same_bytes(a.scales, b.scales) && same_bytes(a.biases, b.biases);
}

}  // namespace

array PreNorm::operator()(const array& h, Step& step) const {
  if (scale == 1.0f || fault("residual scale dropped")) {
    const array mixed = mixer(mixer_norm(h), step, h);
    return ffn(ffn_norm(mixed), mixed);
  }
  const array mixed = mx::add(h, mx::multiply(mixer(mixer_norm(h), step), array(scale)));
  return mx::add(mixed, mx::multiply(ffn(ffn_norm(mixed)), array(scale)));
}

array Sandwich::operator()(const array& h, Step& step) const {
  const auto after = [](const Norm& norm, const array& y) {
    return fault("norm after sublayer left out") ? y : norm(y);
  };
  const array mixed = mx::add(h, after(after_mixer, mixer(mixer_norm(h), step)));
  return mx::add(mixed, after(after_ffn, ffn(ffn_norm(mixed))));
}

array NormAfter::operator()(const array& h, Step& step) const {
  const auto after = [](const Norm& norm, const array& y) {
    return fault("norm after sublayer left out") ? y : norm(y);
  };
  const array mixed = mx::add(h, after(after_mixer, mixer(h, step)));
  return mx::add(mixed, after(after_ffn, ffn(mixed)));
}

array Parallel::operator()(const array& h, Step& step) const {
  const array normed = norm(h);
  const array mixed = mixer(normed, step, h);
  if (fault("parallel branches in a row")) return ffn(ffn_norm ? (*ffn_norm)(mixed) : norm(mixed), mixed);
  return ffn(ffn_norm ? (*ffn_norm)(h) : normed, mixed);
}

array MixerOnly::operator()(const array& h, Step& step) const { return mixer(norm(h), step, h); }

Linear make_head(const Weights& w, std::string_view name, std::string_view embedding_name,
                 const Embedding& embedding, Tie tie, Bias bias) {
  const std::string weight = std::string(name) + ".weight";
  if (tie == Tie::no || (tie == Tie::unless_shipped && w.has(weight)))
    return w.linear(name, embedding.rows, embedding.width, bias);
  if (tie == Tie::yes && w.has(weight)) {
    const std::string table = std::string(embedding_name) + ".weight";
    const auto stray = w.peek(weight);
    const auto used = w.peek(table);
    if (stray && used && !same_weight(*stray, *used))
      w.warn(fmt::format("{} differs from {}, which is used: tie_word_embeddings is set", weight, table));
    w.leave_out(weight);
  }
  Linear head = embedding.as_linear();
  head.bias = w.bias(std::string(name) + ".bias", embedding.rows, bias);
  return head;
}

float root_of_width(const Weights& w, int hidden) {
  const float exact = std::sqrt(static_cast<float>(hidden));
  const auto dtype = w.dtype("model.embed_tokens.weight");
  if (dtype == mx::bfloat16) return static_cast<float>(mx::bfloat16_t(exact));
  if (dtype == mx::float16) return static_cast<float>(mx::float16_t(exact));
  return exact;
}

void refuse_two_way(const Config& config) {
  if (config.get("use_bidirectional_attention", false))
    fail(ErrorKind::unsupported, "{}: use_bidirectional_attention: two-way embedders of this family are not supported yet",
         config.where());
}

NormMaker rms_norms(int width, float eps, float offset) {
  return [=](const Weights& w, std::string_view name) { return Norm(w.rms_norm(name, width, eps, offset)); };
}

NormMaker layer_norms(int width, float eps, Bias bias) {
  return [=](const Weights& w, std::string_view name) { return Norm(w.layer_norm(name, width, eps, bias)); };
}

Decoder standard_decoder(const Weights& w, const Dims& dims, const NormMaker& norm,
                         const StandardOptions& options,
                         const std::function<Block(int i, const Weights& layer)>& layer) {
  const std::string root(options.root), table = root + ".embed_tokens";
  Decoder model(dims, w.embedding(table, dims.vocab, dims.hidden, options.embedding_scale));
  for (const auto& [i, scope] : w.layers(root + ".layers", dims.layers)) model.add(layer(i, scope));
  model.finish(norm(w, root + ".norm"),
               make_head(w, options.head, table, model.embedding(), options.tie, options.head_bias));
  return model;
}

Decoder::Decoder(const Dims& dims, Embedding embedding) : dims_(dims), embedding_(std::move(embedding)) {}

void Decoder::finish(Norm norm, Linear head) {
  norm_ = std::move(norm);
  head_ = std::move(head);
}

NetworkFacts Decoder::facts() const {
  return {.vocab = dims_.vocab,
          .hidden = dims_.hidden,
          .layers = static_cast<int>(blocks_.size()),
          .max_positions = dims_.max_positions,
          .encoder = false};
}

array Decoder::layers(Step& step) const {
  array h = embedding_(step);
  if (embedding_norm_ && !fault("embedding norm left out")) h = (*embedding_norm_)(h);
  if (positions_) h = mx::add(h, positions_->at_positions(step));
  for (const Block& block : blocks_) h = block(h, step);
  return h;
}

array Decoder::hidden(Step& step) const {
  if (!norm_) fail(ErrorKind::internal, "decoder without a final norm: finish() was not called");
  return (*norm_)(layers(step));
}

array Decoder::logits(Step& step) const {
  if (!norm_) fail(ErrorKind::internal, "decoder without a final norm: finish() was not called");
  array h = layers(step);
  const auto& wanted = step.wanted();
  // Nobody asks for logits, but the layers must still run: an empty view of their output carries them.
  if (wanted.empty()) return mx::reshape(mx::slice(h, {0, 0}, {0, dims_.hidden}), {0, dims_.vocab});
  if (static_cast<int>(wanted.size()) != step.count())
    h = mx::take(h, array(wanted.data(), {static_cast<int>(wanted.size())}, mx::int32), 0);
  array y = head_((*norm_)(h));
  if (logit_scale_ != 1.0f && !fault("logit scale dropped")) y = mx::multiply(y, array(logit_scale_));
  if (softcap_ > 0.0f && !fault("logit cap dropped")) y = mx::multiply(mx::tanh(mx::divide(y, array(softcap_))), array(softcap_));
  return y;
}

}  // namespace mlxcel
