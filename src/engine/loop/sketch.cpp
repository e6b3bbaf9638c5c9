#include "engine/loop/sketch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace mlxcel {
namespace {

/// The logarithm of a row's sum of e^logit, and its entropy in nats.
struct Row {
  double level = 0.0, entropy = 0.0;
};

Row measured(std::span<const float> logits) {
  const double top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0, weighed = 0.0;
  for (const float x : logits) {
    const double away = static_cast<double>(x) - top, share = std::exp(away);
    sum += share;
    weighed += share * away;
  }
  return {top + std::log(sum), std::log(sum) - weighed / sum};
}

uint64_t mixed(uint64_t z) {  // splitmix64
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

Diffusion tuned(Diffusion d, const Checkpoint& checkpoint) {
  if (!d.redraws) return d;
  const Config& own = checkpoint.generation_config;
  const auto real = [&](const Config& from, const char* key, float least, float most, float& to) {
    const float value = from.get(key, to);
    if (!(value >= least && value <= most))
      fail(ErrorKind::bad_checkpoint, "{}: {}: expected {} to {}, found {}", from.where(), key, least, most,
           value);
    to = value;
  };
  d.steps = own.integer("max_denoising_steps", 1, 4096, d.steps);
  if (d.sampler == Diffusion::Sampler::entropy_bound)
    real(own.child("sampler_config"), "entropy_bound", 1e-6f, 1e6f, d.entropy);
  real(own, "t_max", 1e-3f, 100.0f, d.hottest);
  real(own, "t_min", 1e-3f, 100.0f, d.coolest);
  real(own, "confidence_threshold", 0.0f, 100.0f, d.confident);
  d.stable = own.integer("stability_threshold", 0, 4096, d.stable);
  return d;
}

int64_t Sketch::counter(int place) const {
  // Behind any position of a sequence: the draws of a round are none of the answer's own.
  return (static_cast<int64_t>(round_) + 1) * (int64_t{1} << 32) + position_ + place;
}

TokenId Sketch::noise(int place) const {
  const uint64_t draw = mixed(mixed(seed_) ^ static_cast<uint64_t>(counter(place)));
  return static_cast<TokenId>((draw >> 32) * static_cast<uint64_t>(vocab_) >> 32);
}

void Sketch::begin(int size, int64_t position) {
  position_ = position;
  round_ = -1;  // the noise before the first round
  tokens_.assign(static_cast<size_t>(size), 0);
  for (int place = 0; place < size; ++place) tokens_[static_cast<size_t>(place)] = noise(place);
  round_ = 0;
  agreeing_ = 0;
  likeliest_.clear();
  before_.reset();
}

int Sketch::length(int wanted) const {
  return std::clamp(wanted, std::min(model_.least, model_.block), model_.block);
}

float Sketch::temperature() const {
  const float left = static_cast<float>(model_.steps - round_) / static_cast<float>(model_.steps);
  return model_.coolest + (model_.hottest - model_.coolest) * left;
}

std::vector<bool> Sketch::kept(const std::vector<double>& entropies, std::span<const float> logits,
                               std::span<const TokenId> drawn) const {
  std::vector<bool> stays(drawn.size(), false);
  const auto vocab = static_cast<size_t>(vocab_);
  if (model_.sampler == Diffusion::Sampler::random) {  // more of them in every round
    const auto share = static_cast<int64_t>(round_ + 1) * (int64_t{1} << 31) / model_.steps;
    for (size_t place = 0; place < drawn.size(); ++place)
      stays[place] = static_cast<int64_t>(
                         mixed(static_cast<uint64_t>(counter(static_cast<int>(place))) ^ mixed(seed_ + 1u)) >>
                         33) < share;
    return stays;
  }
  if (model_.sampler == Diffusion::Sampler::confidence) {
    for (size_t place = 0; place < drawn.size(); ++place) {
      const auto row = logits.subspan(place * vocab, vocab);
      const double own = static_cast<double>(row[static_cast<size_t>(drawn[place])]);
      stays[place] = std::exp(own - measured(row).level) > static_cast<double>(model_.threshold);
    }
    return stays;
  }
  std::vector<size_t> order(drawn.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return entropies[a] < entropies[b]; });
  double before = 0.0;  // the surest tokens' entropies; the one at hand does not count
  for (const size_t place : order) {
    if (before > static_cast<double>(model_.entropy)) break;
    stays[place] = true;
    before += entropies[place];
  }
  return stays;
}

bool Sketch::settle(std::vector<float> logits, std::span<const TokenId> drawn) {
  const auto vocab = static_cast<size_t>(vocab_), size = tokens_.size();
  std::vector<double> entropies;
  std::vector<TokenId> likeliest;
  for (size_t place = 0; place < size; ++place) {
    const std::span<const float> row(logits.data() + place * vocab, vocab);
    entropies.push_back(measured(row).entropy);
    likeliest.push_back(static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  const auto stays = kept(entropies, logits, drawn);
  agreeing_ = likeliest == likeliest_ ? agreeing_ + 1 : 0;
  likeliest_ = std::move(likeliest);
  const double doubt = std::accumulate(entropies.begin(), entropies.end(), 0.0) / static_cast<double>(size);
  for (size_t place = 0; place < size; ++place)
    tokens_[place] = stays[place] ? drawn[place] : noise(static_cast<int>(place));
  before_ = array(logits.data(), {static_cast<int>(size), vocab_}, mx::float32);
  ++round_;
  return round_ >= model_.steps ||
         (agreeing_ >= model_.stable && doubt < static_cast<double>(model_.confident));
}

std::vector<TokenId> Sketch::take() {
  tokens_.clear();
  before_.reset();
  return std::exchange(likeliest_, {});
}

}  // namespace mlxcel
