#include "network.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "checkpoint/rules/pattern.h"

namespace mlxcel::archtest {

namespace {

Shape swapped(Shape shape) {
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}

/// The tensors before a rule was applied.
std::vector<TensorShape> undone(const Rule& rule, const std::vector<TensorShape>& after) {
  std::vector<TensorShape> before;
  for (const TensorShape& tensor : after) {
    const auto found = rule.to.empty() ? std::nullopt : match(rule.to.front(), tensor.name);
    if (rule.kind == Rule::Kind::transpose && match(rule.from, tensor.name)) {
      before.push_back({tensor.name, swapped(tensor.shape)});
    } else if (rule.kind == Rule::Kind::stack && found) {
      for (int i = 0; i < tensor.shape[0]; ++i) {
        auto captures = *found;
        captures.push_back({'#', std::to_string(i)});
        before.push_back({fill(rule.from, captures), Shape(tensor.shape.begin() + 1, tensor.shape.end())});
      }
    } else {
      before.push_back(tensor);
    }
  }
  return before;
}

class Wrapped : public Source {
 public:
  explicit Wrapped(std::shared_ptr<Source> source) : source_(std::move(source)) {}
  std::vector<std::string> names() const override { return source_->names(); }
  std::optional<WeightInfo> find(const std::string& name) const override { return source_->find(name); }
  Weight load(const std::string& name) override { return source_->load(name); }

 protected:
  std::shared_ptr<Source> source_;
};

class Changed : public Wrapped {
 public:
  Changed(std::shared_ptr<Source> source, Change change)
      : Wrapped(std::move(source)), change_(std::move(change)) {}
  Weight load(const std::string& name) override {
    Weight weight = source_->load(name);
    std::vector<float> values(weight.data.data<float>(), weight.data.data<float>() + weight.data.size());
    change_(name, values);
    weight.data = array(values.data(), weight.shape, mx::float32);
    return weight;
  }

 private:
  Change change_;
};

class Without : public Wrapped {
 public:
  Without(std::shared_ptr<Source> source, std::string name)
      : Wrapped(std::move(source)), name_(std::move(name)) {}
  std::vector<std::string> names() const override {
    auto all = source_->names();
    std::erase(all, name_);
    return all;
  }
  std::optional<WeightInfo> find(const std::string& name) const override {
    return name == name_ ? std::nullopt : source_->find(name);
  }

 private:
  std::string name_;
};

class With : public Wrapped {
 public:
  With(std::shared_ptr<Source> source, Weight extra) : Wrapped(std::move(source)), extra_(std::move(extra)) {}
  std::vector<std::string> names() const override {
    auto all = source_->names();
    all.push_back(extra_.name);
    std::sort(all.begin(), all.end());
    return all;
  }
  std::optional<WeightInfo> find(const std::string& name) const override {
    if (name != extra_.name) return source_->find(name);
    return WeightInfo{extra_.shape, extra_.data.dtype(), extra_.format, "F32", extra_.data.nbytes()};
  }
  Weight load(const std::string& name) override { return name == extra_.name ? extra_ : source_->load(name); }

 private:
  Weight extra_;
};

/// "conv1d" of "layers.3.mixer.conv1d.weight".
std::string module_of(const std::string& name) {
  const std::string path = name.substr(0, name.rfind('.'));
  return path.substr(path.rfind('.') + 1);
}

class Quantised : public Wrapped {
 public:
  Quantised(std::shared_ptr<Source> source, int group)
      : Wrapped(std::move(source)), format_{QuantMode::affine, 4, group} {}

  bool covers(const std::string& name, const Shape& shape) const {
    return (shape.size() == 2 || shape.size() == 3) && shape.back() % format_.group_size == 0 &&
           module_of(name).find("conv") == std::string::npos && !name.ends_with("bias");
  }
  std::optional<WeightInfo> find(const std::string& name) const override {
    auto info = source_->find(name);
    if (!info || !covers(name, info->shape)) return info;
    info->format = format_;
    info->stored_as = "affine4g" + std::to_string(format_.group_size);
    info->bytes /= 8;
    return info;
  }
  Weight load(const std::string& name) override {
    Weight weight = source_->load(name);
    if (!covers(name, weight.shape)) return weight;
    auto planes = mx::quantize(weight.data, format_.group_size, format_.bits);
    mx::eval(planes);
    return {name, weight.shape, planes[0], planes[1], planes[2], format_};
  }

 private:
  QuantFormat format_;
};

class Dequantised : public Wrapped {
 public:
  using Wrapped::Wrapped;
  std::optional<WeightInfo> find(const std::string& name) const override {
    auto info = source_->find(name);
    if (info) info->format.reset();
    return info;
  }
  Weight load(const std::string& name) override {
    Weight weight = source_->load(name);
    if (!weight.quantized()) return weight;
    array dense = mx::contiguous(dequantized(weight, mx::float32));
    dense.eval();
    return {name, weight.shape, dense, {}, {}, {}};
  }
};

double difference(double a, double b) {
  const double d = std::abs(a - b);
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

std::vector<double> log_probabilities(const std::vector<float>& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  std::vector<double> result;
  for (const float x : logits) result.push_back(x - top - std::log(sum));
  return result;
}

bool same_sizes(const Rows& a, const Rows& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.size() == y.size();
         });
}

}  // namespace

Config tiny_config(const NamedArch& entry) { return Config::parse(entry.arch.tiny, entry.family + ".tiny"); }

std::vector<TensorShape> published(const NamedArch& entry) {
  const Config config = tiny_config(entry);
  StateLayout layout;
  const auto recorder = Weights::record(layout);
  (void)entry.arch.build(config, recorder);
  auto tensors = recorder.report().asked;
  // Where a shape decides, rules see the layout that needs no change (the goldens have the other).
  const auto rules = entry.arch.weights(config, *synthetic_source(tensors));
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) tensors = undone(*rule, tensors);
  return tensors;
}

std::shared_ptr<Source> tiny_source(const NamedArch& entry) { return synthetic_source(published(entry)); }

std::shared_ptr<Source> changed(std::shared_ptr<Source> source, Change change) {
  return std::make_shared<Changed>(std::move(source), std::move(change));
}
std::shared_ptr<Source> without(std::shared_ptr<Source> source, const std::string& name) {
  return std::make_shared<Without>(std::move(source), name);
}
std::shared_ptr<Source> with(std::shared_ptr<Source> source, Weight extra) {
  return std::make_shared<With>(std::move(source), std::move(extra));
}
std::shared_ptr<Source> quantised(std::shared_ptr<Source> source, int group) {
  return std::make_shared<Quantised>(std::move(source), group);
}
std::shared_ptr<Source> dequantised_source(std::shared_ptr<Source> source) {
  return std::make_shared<Dequantised>(std::move(source));
}

Tokens some_tokens(int vocab, int count, int seed) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 37 + (i * i) % 23 + seed * 101 + 5) % vocab);
  return tokens;
}

Rows finish(Model& model, Step& step) {
  step.seal();
  const array answer = mx::contiguous(model.info().encoder ? model.hidden(step) : model.logits(step));
  std::vector<array> all = step.pending();
  all.push_back(answer);
  mx::eval(all);
  step.commit();
  const auto width = static_cast<size_t>(answer.shape(1));
  Rows rows(static_cast<size_t>(answer.shape(0)));
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i].assign(answer.data<float>() + i * width, answer.data<float>() + (i + 1) * width);
  return rows;
}

Rows run(Model& model, const Tokens& tokens, const std::vector<int>& chunks, mx::Dtype kv) {
  if (model.info().encoder) {
    Step step;
    step.add(nullptr, tokens, Wants::all);
    return finish(model, step);
  }
  StateStore store(model.layout(), {.kv_dtype = kv, .max_tokens = 1024});
  RowState row = store.make_row(static_cast<int>(tokens.size()));
  Rows answers;
  size_t at = 0;
  for (size_t i = 0; at < tokens.size(); ++i) {
    const size_t left = tokens.size() - at,
                 count = i < chunks.size() ? std::min<size_t>(left, static_cast<size_t>(chunks[i])) : left;
    Step step;
    step.add(&row, std::span(tokens).subspan(at, count), Wants::all);
    for (auto& answer : finish(model, step)) answers.push_back(std::move(answer));
    at += count;
  }
  return answers;
}

float distance(const Rows& a, const Rows& b) {
  if (!same_sizes(a, b)) return std::numeric_limits<float>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[i].size(); ++j) worst = std::max(worst, difference(a[i][j], b[i][j]));
  return static_cast<float>(worst);
}

float log_distance(const Rows& a, const Rows& b) {
  if (!same_sizes(a, b)) return std::numeric_limits<float>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = log_probabilities(a[i]), y = log_probabilities(b[i]);
    for (size_t j = 0; j < x.size(); ++j)
      if (x[j] > -10) worst = std::max(worst, difference(x[j], y[j]));
  }
  return static_cast<float>(worst);
}

}  // namespace mlxcel::archtest
