#include "sample/chain.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace mlxcel {
namespace {

constexpr double kSlack = 1e-6;  // a set that reaches its share to within rounding has reached it
constexpr int kMirostatTokens = 100;

bool better(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
}

}  // namespace

void Candidates::start(std::span<const float> row) {
  list_.clear();
  for (size_t i = 0; i < row.size(); ++i)
    if (row[i] > -std::numeric_limits<float>::infinity()) list_.push_back({static_cast<int32_t>(i), row[i]});
  sorted_ = false;
}

void Candidates::sort() {
  if (!sorted_) std::sort(list_.begin(), list_.end(), better);
  sorted_ = true;
}

float Candidates::highest() const {
  float best = -std::numeric_limits<float>::infinity();
  for (const auto& entry : list_) best = std::max(best, entry.logprob);
  return best;
}

const std::vector<double>& Candidates::probabilities() {
  const double top = highest();
  probabilities_.resize(list_.size());
  double total = 0.0;
  for (size_t i = 0; i < list_.size(); ++i)
    total += probabilities_[i] = std::exp(static_cast<double>(list_[i].logprob) - top);
  for (double& p : probabilities_) p /= total;
  return probabilities_;
}

double Candidates::entropy() {
  double sum = 0.0;
  for (double p : probabilities())
    if (p > 0.0) sum -= p * std::log(p);
  return sum;
}

void Candidates::top_n_sigma(float n) {
  if (n <= 0.0f || list_.size() < 2) return;
  double mean = 0.0, squares = 0.0;
  for (const auto& e : list_) mean += static_cast<double>(e.logprob);
  mean /= static_cast<double>(list_.size());
  for (const auto& e : list_)
    squares += (static_cast<double>(e.logprob) - mean) * (static_cast<double>(e.logprob) - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(list_.size()));
  const double floor = static_cast<double>(highest()) - static_cast<double>(n) * deviation;
  std::erase_if(list_, [&](const auto& e) { return static_cast<double>(e.logprob) < floor; });
}

void Candidates::top_k(int k) {
  if (k <= 0 || static_cast<size_t>(k) >= list_.size()) return;
  if (!sorted_) {
    std::partial_sort(list_.begin(), list_.begin() + k, list_.end(), better);
    sorted_ = true;
  }
  keep(static_cast<size_t>(k));
}

void Candidates::typical(float p, int min_keep) {
  if (p >= 1.0f) return;
  sort();  // so that ties fall the same way whatever came before
  const double mean = entropy();
  std::vector<size_t> order(list_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<double> distance(list_.size());
  for (size_t i = 0; i < list_.size(); ++i)
    distance[i] = probabilities_[i] > 0.0 ? std::abs(-std::log(probabilities_[i]) - mean)
                                          : std::numeric_limits<double>::infinity();
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distance[a] < distance[b]; });
  double reached = 0.0;
  size_t count = 0;
  while (count < order.size()) {
    reached += probabilities_[order[count++]];
    if (reached > static_cast<double>(p) - kSlack && count >= static_cast<size_t>(min_keep)) break;
  }
  order.resize(count);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < count; ++i) list_[i] = list_[order[i]];
  keep(count);
}

void Candidates::top_p(float p, int min_keep) {
  if (p >= 1.0f) return;
  sort();
  probabilities();
  double reached = 0.0;
  size_t count = 0;
  while (count < list_.size()) {
    reached += probabilities_[count++];
    if (reached >= static_cast<double>(p) - kSlack && count >= static_cast<size_t>(min_keep)) break;
  }
  keep(count);
}

void Candidates::min_p(float p, int min_keep) {
  if (p <= 0.0f) return;
  const double floor = static_cast<double>(highest()) + std::log(static_cast<double>(p)) - kSlack;
  const auto below = [&](const auto& e) { return static_cast<double>(e.logprob) < floor; };
  const auto kept = static_cast<size_t>(std::count_if(list_.begin(), list_.end(), std::not_fn(below)));
  if (kept >= static_cast<size_t>(min_keep)) {
    std::erase_if(list_, below);
    return;
  }
  sort();
  keep(std::min(list_.size(), static_cast<size_t>(min_keep)));
}

void Candidates::xtc(float probability, float threshold, int min_keep, double uniform) {
  if (probability <= 0.0f || threshold > 0.5f || list_.size() < 2 ||
      uniform >= static_cast<double>(probability))
    return;
  probabilities();
  std::vector<size_t> above;
  for (size_t i = 0; i < list_.size(); ++i)
    if (probabilities_[i] >= static_cast<double>(threshold)) above.push_back(i);
  if (above.size() < 2 || list_.size() - (above.size() - 1) < static_cast<size_t>(min_keep)) return;
  // All of them but the least likely go.
  const size_t stays = *std::max_element(above.begin(), above.end(),
                                         [&](size_t a, size_t b) { return better(list_[a], list_[b]); });
  std::erase_if(above, [&](size_t i) { return i == stays; });
  size_t out = 0, next = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    if (next < above.size() && above[next] == i) {
      ++next;
      continue;
    }
    list_[out++] = list_[i];
  }
  keep(out);
}

void Candidates::temperature(float value) {
  if (value == 1.0f) return;
  const float top = highest();
  if (value <= 0.0f) {
    sort();
    keep(1);
    return;
  }
  // Distances from the highest, so that a tiny temperature cannot leave the floats upwards.
  for (auto& e : list_)
    e.logprob =
        static_cast<float>(std::max((static_cast<double>(e.logprob) - top) / static_cast<double>(value),
                                    static_cast<double>(std::numeric_limits<float>::lowest())));
}

void Candidates::dynamic_temperature(float value, float range, float exponent) {
  if (range <= 0.0f) return temperature(value);
  if (list_.size() < 2) return;
  const double low = std::max(0.0, static_cast<double>(value) - range),
               high = static_cast<double>(value) + range;
  const double share = entropy() / std::log(static_cast<double>(list_.size()));
  temperature(static_cast<float>(low + (high - low) * std::pow(share, static_cast<double>(exponent))));
}

void Candidates::mirostat(float mu, int vocab) {
  sort();
  probabilities();
  double products = 0.0, squares = 0.0;
  for (size_t i = 0; i + 1 < list_.size() && i + 1 < static_cast<size_t>(kMirostatTokens); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double b = static_cast<double>(list_[i].logprob) - static_cast<double>(list_[i + 1].logprob);
    products += t * b;
    squares += t * t;
  }
  if (squares == 0.0) return;
  const double s = products / squares, excess = s - 1.0;
  const double k = std::pow(
      excess * std::exp2(static_cast<double>(mu)) / (1.0 - std::pow(static_cast<double>(vocab), -excess)),
      1.0 / s);
  // A flat distribution has no such k (0 / 0): then one token, as the reference implementations end up with.
  const double most = static_cast<double>(list_.size());
  keep(std::isfinite(k) ? static_cast<size_t>(std::clamp(k, 1.0, most)) : 1);
}

void Candidates::mirostat2(float mu) {
  sort();
  probabilities();
  size_t count = 0;
  while (count < list_.size() && -std::log2(probabilities_[count]) <= static_cast<double>(mu)) ++count;
  keep(std::max<size_t>(count, 1));
}

size_t Candidates::draw(double uniform) {
  probabilities();
  double reached = 0.0;
  size_t last = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    if (probabilities_[i] == 0.0) continue;
    reached += probabilities_[i];
    last = i;
    if (reached > uniform) break;
  }
  return last;
}

}  // namespace mlxcel
