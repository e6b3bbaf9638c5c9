#include "models/fitted.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/values.h"
#include "nn/dims.h"
#include "tensor/external.h"

namespace mlxcel {

namespace {

/// A dense type that holds a weight's values.
mx::Dtype dense_dtype(const WeightInfo& info) {
  const bool floating = info.dtype == mx::float32 || info.dtype == mx::float16 || info.dtype == mx::bfloat16;
  return floating ? info.dtype : mx::bfloat16;
}

const char* word(mx::Dtype dtype) {
  return dtype == mx::float32 ? "F32" : dtype == mx::float16 ? "F16" : "BF16";
}

class FusedSource final : public Source {
 public:
  FusedSource(std::shared_ptr<Source> below, const std::vector<FusedAdapter>& adapters)
      : below_(std::move(below)), adapters_(adapters) {}

  std::vector<std::string> names() const override { return below_->names(); }
  std::optional<WeightInfo> find(const std::string& name) const override {
    auto info = below_->find(name);
    if (!info || !info->format || products(name, info->shape).empty()) return info;
    info->dtype = dense_dtype(*info);
    info->format.reset();
    info->stored_as = word(info->dtype);
    info->bytes = mx::size_of(info->dtype);
    for (const int n : info->shape) info->bytes *= static_cast<size_t>(n);
    return info;
  }
  Weight load(const std::string& name) override {
    Weight weight = below_->load(name);
    const auto added = products(name, weight.shape);
    if (added.empty()) return weight;
    array values = float_values(weight);
    float* to = values.data<float>();
    for (const auto& [scale, factors] : added) {
      const std::vector<float> product = factors.product();
      for (size_t i = 0; i < product.size(); ++i) to[i] += scale * product[i];
    }
    const mx::Dtype dtype = dense_dtype(below_->find(name).value());
    return {weight.name, weight.shape, dtype == mx::float32 ? values : narrowed(values, dtype, name),
            {},          {},           {}};
  }

 private:
  std::vector<std::pair<float, LowRank>> products(const std::string& name, const Shape& shape) const {
    std::vector<std::pair<float, LowRank>> out;
    if (shape.size() < 2) return out;
    for (const FusedAdapter& one : adapters_)
      if (auto factors = fitted(*below_, one.files, name, shape))
        out.emplace_back(one.scale, std::move(*factors));
    return out;
  }

  std::shared_ptr<Source> below_;
  const std::vector<FusedAdapter>& adapters_;  // live as long as the load
};

}  // namespace

AdapterFiles settled(const Config& config, AdapterFiles files) {
  const int heads = config.integer("num_attention_heads", 0, kMaxHeads, 0);
  const auto type = config.get<std::string>("model_type");
  files.settle({.heads = heads,
                .kv_heads = config.integer("num_key_value_heads", 0, kMaxHeads, heads),
                .turned_experts = type == "gpt_oss" || type.starts_with("llama4")});
  return files;
}

std::optional<LowRank> fitted(const Source& source, const AdapterFiles& files, const std::string& weight,
                              const Shape& shape) {
  auto found =
      source.low_rank(weight, [&](const std::string& name, const Shape& own) { return files.of(name, own); });
  if (!found) found = files.of(weight, shape);
  if (!found) found = files.of_bank(weight, shape);
  if (found && found->shape() != shape)
    fail(ErrorKind::bad_checkpoint, "{}: {}: the adapter makes {}, the model has {}", files.path().string(),
         weight, to_string(found->shape()), to_string(shape));
  return found;
}

void refuse_unused(const AdapterFiles& files) {
  const auto names = files.unused();
  if (names.empty()) return;
  constexpr size_t kNamesInMessage = 8;
  const auto shown = std::min(names.size(), kNamesInMessage);
  fail(ErrorKind::bad_checkpoint, "{}: {} of {} pairs fit no weight of this model: {}{}",
       files.path().string(), names.size(), files.pairs(),
       fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
       names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
}

void refuse_shared_tables(const AdapterBook& book, const AdapterFiles& files) {
  if (files.heads_follow_tables()) return;
  for (const std::string& table : book.shared_tables())
    if (files.touches(table))
      fail(ErrorKind::unsupported,
           "{}: {}: cannot be fused: the output head shares this table, and the adapter leaves the head as "
           "it is",
           files.path().string(), table);
}

void check_copies(Source& source, const AdapterFiles& files) {
  for (const AdapterFiles::Copy& copy : files.copies()) {
    bool same = false;
    for (const auto& name : source.names()) {
      if (AdapterFiles::bare(name) != copy.weight) continue;
      const array own = float_values(source.load(name));
      same = own.shape() == copy.values.shape() &&
             std::equal(own.data<float>(), own.data<float>() + own.size(), copy.values.data<float>());
    }
    if (!same)
      fail(ErrorKind::bad_checkpoint,
           "{}: {}: not the weight that the model has: retrained or resized tables, and copies beside a "
           "quantised "
           "model, are not supported",
           files.path().string(), copy.stored);
  }
}

std::shared_ptr<Source> fused(std::shared_ptr<Source> source, const std::vector<FusedAdapter>& adapters) {
  if (adapters.empty()) return source;
  return std::make_shared<FusedSource>(std::move(source), adapters);
}

}  // namespace mlxcel
