#include "quantized.h"

#include <cmath>
#include <cstdint>

namespace mlxcel::golden {

namespace {

/// 24 random bits: value i of the name's stream (see models/synthetic.h).
uint32_t draw(uint64_t key, uint64_t i) {
  uint64_t z = key + (i + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>((z ^ (z >> 31)) >> 40);
}

uint64_t key_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

float unit(uint64_t key, uint64_t i) { return static_cast<float>(draw(key, i)) * 0x1p-23f - 1.0f; }

Weight make(const std::string& name, const Shape& shape, const QuantFormat& format) {
  size_t count = 1;
  for (const int n : shape) count *= static_cast<size_t>(n);
  const auto bits = static_cast<size_t>(format.bits), group = static_cast<size_t>(format.group_size);
  const uint64_t key = key_of(name);
  const uint32_t mask = (1u << bits) - 1;
  std::vector<uint32_t> words(count * bits / 32, 0);
  for (size_t i = 0; i < count; ++i) {
    const size_t bit = i * bits;
    words[bit / 32] |= (draw(key, i) & mask) << (bit % 32);
  }
  const auto top = static_cast<float>(mask);
  const float reach =
      name.find("embed") != std::string::npos ? 0.5f : static_cast<float>(std::sqrt(3.0 / shape.back()));
  const float width = 2.0f * reach / top;
  const uint64_t scale_key = key_of(name + ".scales"), bias_key = key_of(name + ".biases");
  std::vector<mx::float16_t> scales(count / group), biases(count / group);
  for (size_t i = 0; i < scales.size(); ++i) {
    const float quarter = width * 0.25f * unit(scale_key, i);
    scales[i] = mx::float16_t(width + quarter);
    const float middle = -0.5f * top * static_cast<float>(scales[i]);
    const float tenth = middle * 0.1f * unit(bias_key, i);
    biases[i] = mx::float16_t(middle + tenth);
  }
  Shape packed = shape, grouped = shape;
  packed.back() = shape.back() * format.bits / 32;
  grouped.back() = shape.back() / format.group_size;
  return {name,
          shape,
          array(words.data(), packed, mx::uint32),
          array(scales.data(), grouped, mx::float16),
          array(biases.data(), grouped, mx::float16),
          format};
}

class QuantizedSource : public Source {
 public:
  QuantizedSource(const std::vector<TensorShape>& tensors, Formats formats)
      : dense_(synthetic_source(tensors)), formats_(std::move(formats)) {}

  std::vector<std::string> names() const override { return dense_->names(); }

  std::optional<WeightInfo> find(const std::string& name) const override {
    auto info = dense_->find(name);
    const auto at = formats_.find(name);
    if (!info || at == formats_.end()) return info;
    const auto bits = static_cast<size_t>(at->second.bits),
               group = static_cast<size_t>(at->second.group_size);
    const size_t count = info->bytes / sizeof(float);
    info->dtype = mx::float16;
    info->format = at->second;
    info->stored_as = "affine" + std::to_string(bits) + "g" + std::to_string(group);
    info->bytes = count * bits / 8 + 2 * sizeof(mx::float16_t) * count / group;
    return info;
  }

  Weight load(const std::string& name) override {
    const auto at = formats_.find(name);
    return at == formats_.end() ? dense_->load(name)
                                : make(name, dense_->find(name).value().shape, at->second);
  }

 private:
  std::shared_ptr<Source> dense_;
  Formats formats_;
};

}  // namespace

std::shared_ptr<Source> source_of(const std::vector<TensorShape>& tensors, const Formats& formats) {
  return std::make_shared<QuantizedSource>(tensors, formats);
}

}  // namespace mlxcel::golden
