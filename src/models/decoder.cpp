#include "models/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/elementwise.h"
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

/// The list's value becomes what `half` makes of it, outside the program.
template <class Half>
void outside(PhaseList& list, const Half& half) {
  list.start(half(list.take()));
}

/// h += scale * part(norm(h)), if it can be said.
template <class Part>
bool extended(PhaseList& list, const Norm& norm, const Part& part, float scale = 1.0f) {
  const auto h = list.value();
  if (scale == 1.0f) return list.whole(h, [&] { return list.norm(norm) && part.phases(list); });
  return list.whole(PhaseList::kNone,
                    [&] { return list.norm(norm) && part.phases(list) && list.add(h, nullptr, scale); });
}

/// h += after(part(norm(h)))
template <class Part>
bool extended(PhaseList& list, const Norm& norm, const Part& part, const Norm& after) {
  const auto h = list.value();
  return list.whole(PhaseList::kNone,
                    [&] { return list.norm(norm) && part.phases(list) && list.add(h, &after); });
}

bool is_tap(std::span<const int> taps, size_t layer) {
  return std::find(taps.begin(), taps.end(), static_cast<int>(layer)) != taps.end();
}

array after_norm(const Norm& norm, const array& y) {
  return fault("norm after sublayer left out") ? y : norm(y);
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

void PreNorm::extend(PhaseList& list) const {
  const auto scaled = [&](const array& h, const array& y) {
    return mx::add(h, mx::multiply(y, array(scale)));
  };
  if (!extended(list, mixer_norm, mixer, scale))
    outside(list, [&](const array& h) {
      return scale == 1.0f ? mixer(mixer_norm(h), list.step(), h)
                           : scaled(h, mixer(mixer_norm(h), list.step()));
    });
  if (!extended(list, ffn_norm, ffn, scale))
    outside(list, [&](const array& h) {
      return scale == 1.0f ? ffn(ffn_norm(h), h) : scaled(h, ffn(ffn_norm(h)));
    });
}

array Sandwich::operator()(const array& h, Step& step) const {
  const array mixed = mx::add(h, after_norm(after_mixer, mixer(mixer_norm(h), step)));
  return mx::add(mixed, after_norm(after_ffn, ffn(ffn_norm(mixed))));
}

void Sandwich::extend(PhaseList& list) const {
  if (!extended(list, mixer_norm, mixer, after_mixer))
    outside(list, [&](const array& h) { return mx::add(h, after_mixer(mixer(mixer_norm(h), list.step()))); });
  if (!extended(list, ffn_norm, ffn, after_ffn))
    outside(list, [&](const array& h) { return mx::add(h, after_ffn(ffn(ffn_norm(h)))); });
}

array NormAfter::operator()(const array& h, Step& step) const {
  const auto after = [](const Norm& norm, const array& y) {
    return fault("norm after sublayer left out") ? y : norm(y);
  };
  const array mixed = mx::add(h, after(after_mixer, mixer(h, step)));
  return mx::add(mixed, after(after_ffn, ffn(mixed)));
}

void NormAfter::extend(PhaseList& list) const {
  const auto said = [&](const auto& part, const Norm& after) {
    const auto h = list.value();
    return list.whole(PhaseList::kNone, [&] { return part.phases(list) && list.add(h, &after); });
  };
  if (!said(mixer, after_mixer))
    outside(list, [&](const array& h) { return mx::add(h, after_mixer(mixer(h, list.step()))); });
  if (!said(ffn, after_ffn)) outside(list, [&](const array& h) { return mx::add(h, after_ffn(ffn(h))); });
}

array Parallel::operator()(const array& h, Step& step) const {
  const array normed = norm(h);
  const array mixed = mixer(normed, step, h);
  if (fault("parallel branches in a row")) return ffn(ffn_norm ? (*ffn_norm)(mixed) : norm(mixed), mixed);
  return ffn(ffn_norm ? (*ffn_norm)(h) : normed, mixed);
}

void Parallel::extend(PhaseList& list) const {
  const auto h = list.value();
  // Both or neither: a program has one value to hand on.
  const bool said = list.whole(h, [&] {
    if (!list.norm(norm) || !mixer.phases(list)) return false;
    list.set_residual(list.value());
    list.set_value(h);
    return list.norm(ffn_norm ? *ffn_norm : norm) && ffn.phases(list);
  });
  if (!said) outside(list, [&](const array& x) { return (*this)(x, list.step()); });
}

array MixerOnly::operator()(const array& h, Step& step) const { return mixer(norm(h), step, h); }

void MixerOnly::extend(PhaseList& list) const {
  if (!extended(list, norm, mixer))
    outside(list, [&](const array& h) { return mixer(norm(h), list.step(), h); });
}

Linear make_head(const Weights& w, std::string_view name, std::string_view embedding_name,
                 const Embedding& embedding, Tie tie, Bias bias) {
  const std::string weight = std::string(name) + ".weight";
  // Embedders and classifiers are published without a head; nothing asks it for logits.
  if (w.keeps_nothing() && !w.has(weight)) tie = Tie::yes;
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
  Linear head = w.head_of(embedding, name, embedding_name);
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
    fail(ErrorKind::unsupported,
         "{}: use_bidirectional_attention: two-way embedders of this family are not supported yet",
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
          .encoder = false,
          .diffusion = diffusion_};
}

array Decoder::layers(Step& step, std::span<const int> taps, std::vector<array>* seen) const {
  array h = embedding_(step);
  if (embedding_norm_ && !fault("embedding norm left out")) h = (*embedding_norm_)(h);
  if (positions_) h = mx::add(h, positions_->at_positions(step));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    h = blocks_[i](h, step);
    if (is_tap(taps, i)) seen->push_back(h);
  }
  return h;
}

void Decoder::layers(PhaseList& list, std::span<const int> taps, std::vector<array>* seen) const {
  if (embedding_.adapted() || !list.lookup(embedding_)) list.start(embedding_(list.step()));
  if (embedding_norm_ && !fault("embedding norm left out") && !list.normed(*embedding_norm_))
    outside(list, [&](const array& h) { return (*embedding_norm_)(h); });
  if (positions_ && !list.add_lookup(*positions_))
    outside(list, [&](const array& h) { return mx::add(h, positions_->at_positions(list.step())); });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    list.breathe();
    blocks_[i].extend(list);
    if (!is_tap(taps, i)) continue;
    seen->push_back(list.take());
    list.start(seen->back());
  }
}

array Decoder::capped(const array& logits) const {
  array y = logits;
  if (logit_scale_ != 1.0f && !fault("logit scale dropped")) y = mx::multiply(y, array(logit_scale_));
  if (softcap_ <= 0.0f || fault("logit cap dropped")) return y;
  return mx::multiply(kernels::activate(mx::divide(y, array(softcap_)), Activation::tanh), array(softcap_));
}

array Decoder::hidden(Step& step) const { return normed(step, {}, nullptr); }

array Decoder::normed(Step& step, std::span<const int> taps, std::vector<array>* seen) const {
  if (!norm_) fail(ErrorKind::internal, "decoder without a final norm: finish() was not called");
  if (!fusing()) return (*norm_)(layers(step, taps, seen));
  PhaseList list(step);
  layers(list, taps, seen);
  return list.whole(PhaseList::kNone, [&] { return list.norm(*norm_); }) ? list.take()
                                                                         : (*norm_)(list.take());
}

std::pair<array, array> Skeleton::logits_and_hidden(Step&) const {
  fail(ErrorKind::unsupported, "this network has no logits beside its hidden states");
}

std::pair<array, array> Skeleton::logits_and_layers(Step&, std::span<const int>) const {
  fail(ErrorKind::unsupported, "this network does not show what its layers give");
}

array Decoder::wanted_logits(const Step& step, const array& normed) const {
  const auto& wanted = step.wanted();
  if (wanted.empty()) return mx::zeros({0, dims_.vocab}, mx::float32);
  const bool some = static_cast<int>(wanted.size()) != step.count();
  return capped(
      head_(some ? mx::take(normed, array(wanted.data(), {static_cast<int>(wanted.size())}, mx::int32), 0)
                 : normed));
}

std::pair<array, array> Decoder::logits_and_hidden(Step& step) const {
  const array states = hidden(step);
  return {wanted_logits(step, states), states};
}

std::pair<array, array> Decoder::logits_and_layers(Step& step, std::span<const int> layers) const {
  if (layers.empty() || !std::is_sorted(layers.begin(), layers.end(), std::less_equal<>()) ||
      layers.front() < 0 || layers.back() >= static_cast<int>(blocks_.size()))
    fail(ErrorKind::internal, "layers to be shown: expected some of 0 to {}, ascending", blocks_.size() - 1);
  std::vector<array> seen;
  const array states = normed(step, layers, &seen);
  const array beside = mx::concatenate(seen, 1);
  // Layers behind the last tap must run even where nobody wants logits: they fill the rows' state.
  if (step.wanted().empty())
    return {mx::reshape(mx::slice(states, {0, 0}, {0, dims_.hidden}), {0, dims_.vocab}), beside};
  return {wanted_logits(step, states), beside};
}

array Decoder::logits(Step& step) const {
  if (!norm_) fail(ErrorKind::internal, "decoder without a final norm: finish() was not called");
  const auto& wanted = step.wanted();
  const bool some = static_cast<int>(wanted.size()) != step.count();
  std::optional<array> h;
  if (fusing()) {
    PhaseList list(step);
    layers(list);
    if (!wanted.empty() && list.whole(PhaseList::kNone, [&] {
          return list.norm(*norm_) &&
                 list.linear(head_, PhaseList::kNone, Activation::none, some ? wanted : std::vector<int>{});
        }))
      return capped(list.take());
    h = list.take();
  } else {
    h = layers(step);
  }
  // Nobody asks for logits, but the layers must still run: an empty view of their output carries them.
  if (wanted.empty()) return mx::reshape(mx::slice(*h, {0, 0}, {0, dims_.hidden}), {0, dims_.vocab});
  if (some) h = mx::take(*h, array(wanted.data(), {static_cast<int>(wanted.size())}, mx::int32), 0);
  return capped(head_((*norm_)(*h)));
}

}  // namespace mlxcel
