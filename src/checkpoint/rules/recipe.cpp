#include "checkpoint/rules/recipe.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/error.h"
#include "tensor/external.h"

namespace mlxcel {

namespace {

class Leaf final : public Recipe {
 public:
  Leaf(std::shared_ptr<Source> source, std::string name)
      : source_(std::move(source)), name_(std::move(name)) {}
  WeightInfo info() const override {
    auto found = source_->find(name_);
    if (!found) fail(ErrorKind::internal, "{}: listed but not found", name_);
    return *std::move(found);
  }
  Weight load() override { return source_->load(name_); }
  std::optional<LowRank> low_rank(const LowRankOf& of) const override { return source_->low_rank(name_, of); }

 private:
  std::shared_ptr<Source> source_;
  std::string name_;
};

/// A new leading axis over arrays of one shape and type.
array stack_planes(const std::vector<Weight>& parts,
                   const std::function<const array&(const Weight&)>& plane) {
  const array& first = plane(parts.front());
  Shape shape = first.shape();
  shape.insert(shape.begin(), static_cast<int>(parts.size()));
  array out = allocated(shape, first.dtype());
  std::byte* to = mutable_bytes(out);
  for (const Weight& part : parts) {
    const array& from = plane(part);
    if (from.shape() != first.shape() || from.dtype() != first.dtype())
      fail(ErrorKind::bad_checkpoint, "{}: differs in type or shape from {}, with which it is stacked",
           part.name, parts.front().name);
    if (from.nbytes() > 0) std::memcpy(to, bytes_of(from), from.nbytes());
    to += from.nbytes();
  }
  return out;
}

class Stacked final : public Recipe {
 public:
  Stacked(std::vector<RecipePtr> parts, WeightInfo info) : parts_(std::move(parts)), info_(std::move(info)) {}
  WeightInfo info() const override { return info_; }
  Weight load() override {
    std::vector<Weight> loaded;
    loaded.reserve(parts_.size());
    for (const RecipePtr& part : parts_) loaded.push_back(part->load());
    const Weight& first = loaded.front();
    Weight out{"",
               info_.shape,
               stack_planes(loaded, [](const Weight& w) -> const array& { return w.data; }),
               std::nullopt,
               std::nullopt,
               first.format};
    for (const Weight& part : loaded)
      if (part.format != first.format || part.scales.has_value() != first.scales.has_value() ||
          part.biases.has_value() != first.biases.has_value())
        fail(ErrorKind::bad_checkpoint, "{}: stored otherwise than {}, with which it is stacked", part.name,
             first.name);
    if (first.scales)
      out.scales = stack_planes(loaded, [](const Weight& w) -> const array& { return *w.scales; });
    if (first.biases)
      out.biases = stack_planes(loaded, [](const Weight& w) -> const array& { return *w.biases; });
    return out;
  }
  std::optional<LowRank> low_rank(const LowRankOf& of) const override {
    std::vector<std::optional<LowRank>> parts;
    for (const RecipePtr& part : parts_) parts.push_back(part->low_rank(of));
    return mlxcel::stacked(parts, "a stack of " + to_string(info_.shape));
  }

 private:
  std::vector<RecipePtr> parts_;
  WeightInfo info_;
};

class Piece final : public Recipe {
 public:
  Piece(RecipePtr whole, int begin, int count) : whole_(std::move(whole)), begin_(begin), count_(count) {}
  WeightInfo info() const override {
    WeightInfo info = whole_->info();
    const auto rows = static_cast<size_t>(std::max(info.shape[0], 1));
    info.bytes = info.bytes / rows * static_cast<size_t>(count_);
    info.shape[0] = count_;
    return info;
  }
  Weight load() override {
    Weight out = whole_->load();
    out.shape[0] = count_;
    out.data = row_view(out.data, begin_, count_);
    if (out.scales) out.scales = row_view(*out.scales, begin_, count_);
    if (out.biases) out.biases = row_view(*out.biases, begin_, count_);
    return out;
  }
  std::optional<LowRank> low_rank(const LowRankOf& of) const override {
    const auto whole = whole_->low_rank(of);
    return whole ? std::optional(picked(*whole, 0, begin_, 1, count_)) : std::nullopt;
  }

 private:
  RecipePtr whole_;
  int begin_, count_;
};

/// Rows [begin, begin + count) of each of `groups` equal runs, one run after another.
class SpreadPiece final : public Recipe {
 public:
  SpreadPiece(RecipePtr whole, int begin, int count, int groups)
      : whole_(std::move(whole)), begin_(begin), count_(count), groups_(groups) {}
  WeightInfo info() const override {
    WeightInfo info = whole_->info();
    const auto rows = static_cast<size_t>(std::max(info.shape[0], 1));
    info.shape[0] = count_ * groups_;
    info.bytes = info.bytes / rows * static_cast<size_t>(info.shape[0]);
    return info;
  }
  Weight load() override {
    Weight out = whole_->load();
    out.shape[0] = count_ * groups_;
    out.data = gathered(out.data);
    if (out.scales) out.scales = gathered(*out.scales);
    if (out.biases) out.biases = gathered(*out.biases);
    return out;
  }
  std::optional<LowRank> low_rank(const LowRankOf& of) const override {
    const auto whole = whole_->low_rank(of);
    return whole ? std::optional(picked_in_groups(*whole, begin_, count_, groups_)) : std::nullopt;
  }

 private:
  array gathered(const array& plane) const {
    Shape shape = plane.shape();
    const size_t row = plane.nbytes() / static_cast<size_t>(std::max(shape[0], 1));
    const size_t run = row * static_cast<size_t>(shape[0] / groups_),
                 taken = row * static_cast<size_t>(count_);
    shape[0] = count_ * groups_;
    array out = allocated(shape, plane.dtype());
    for (size_t g = 0; g < static_cast<size_t>(groups_); ++g)
      std::memcpy(mutable_bytes(out) + g * taken,
                  bytes_of(plane) + g * run + row * static_cast<size_t>(begin_), taken);
    return out;
  }

  RecipePtr whole_;
  int begin_, count_, groups_;
};

/// `count` entries of an axis from `first` on, `step` apart.
struct Entries {
  int axis, first, step, count;

  array of(const array& from) const {
    Shape shape = from.shape();
    const auto at = static_cast<size_t>(axis);
    size_t outer = 1, inner = from.itemsize();
    for (size_t i = 0; i < at; ++i) outer *= static_cast<size_t>(shape[i]);
    for (size_t i = at + 1; i < shape.size(); ++i) inner *= static_cast<size_t>(shape[i]);
    const auto all = static_cast<size_t>(shape[at]);
    shape[at] = count;
    array out = allocated(shape, from.dtype());
    std::byte* to = mutable_bytes(out);
    const std::byte* source = bytes_of(from);
    for (size_t o = 0; o < outer; ++o)
      for (int i = 0; i < count; ++i, to += inner)
        std::memcpy(to, source + (o * all + static_cast<size_t>(first + i * step)) * inner, inner);
    return out;
  }
};

class Picked final : public Recipe {
 public:
  Picked(RecipePtr whole, const Entries& entries) : whole_(std::move(whole)), entries_(entries) {}
  WeightInfo info() const override {
    WeightInfo info = whole_->info();
    int& rows = info.shape[static_cast<size_t>(entries_.axis)];
    info.bytes = info.bytes / static_cast<size_t>(std::max(rows, 1)) * static_cast<size_t>(entries_.count);
    rows = entries_.count;
    return info;
  }
  Weight load() override {
    Weight out = whole_->load();
    out.shape[static_cast<size_t>(entries_.axis)] = entries_.count;
    out.data = entries_.of(out.data);
    if (out.scales) out.scales = entries_.of(*out.scales);
    if (out.biases) out.biases = entries_.of(*out.biases);
    return out;
  }
  std::optional<LowRank> low_rank(const LowRankOf& of) const override {
    const auto whole = whole_->low_rank(of);
    if (!whole) return std::nullopt;
    return picked(*whole, entries_.axis, entries_.first, entries_.step, entries_.count);
  }

 private:
  RecipePtr whole_;
  Entries entries_;
};

Shape led_by(int count, const Shape& shape) {
  Shape led{count, shape[0] / count};
  for (size_t i = 1; i < shape.size(); ++i) led.push_back(shape[i]);
  return led;
}

class Unflattened final : public Recipe {
 public:
  Unflattened(RecipePtr whole, int count) : whole_(std::move(whole)), count_(count) {}
  WeightInfo info() const override {
    WeightInfo info = whole_->info();
    info.shape = led_by(count_, info.shape);
    return info;
  }
  Weight load() override {
    Weight out = whole_->load();
    const auto view = [&](const array& plane) {
      auto owner = std::make_shared<array>(plane);
      std::byte* data = mutable_bytes(*owner);
      return external(data, led_by(count_, plane.shape()), plane.dtype(), owner);
    };
    out.shape = led_by(count_, out.shape);
    out.data = view(out.data);
    if (out.scales) out.scales = view(*out.scales);
    if (out.biases) out.biases = view(*out.biases);
    return out;
  }
  std::optional<LowRank> low_rank(const LowRankOf& of) const override {
    const auto whole = whole_->low_rank(of);
    if (!whole) return std::nullopt;
    return mlxcel::unflattened(*whole, count_, to_string(whole->shape()));
  }

 private:
  RecipePtr whole_;
  int count_;
};

/// What a quantised weight's values are held in once they are dense.
mx::Dtype dense_dtype(const WeightInfo& info) {
  if (!info.format) return info.dtype;
  return info.format->mode == QuantMode::affine ? info.dtype : mx::bfloat16;
}

Shape swapped(Shape shape) {
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}

template <class T>
void transpose_matrix(const T* from, T* to, int rows, int columns) {
  constexpr int kTile = 32;
  for (int r = 0; r < rows; r += kTile)
    for (int c = 0; c < columns; c += kTile)
      for (int i = r; i < std::min(r + kTile, rows); ++i)
        for (int k = c; k < std::min(c + kTile, columns); ++k)
          to[static_cast<size_t>(k) * static_cast<size_t>(rows) + static_cast<size_t>(i)] =
              from[static_cast<size_t>(i) * static_cast<size_t>(columns) + static_cast<size_t>(k)];
}

class Transposed final : public Recipe {
 public:
  explicit Transposed(RecipePtr dense) : dense_(std::move(dense)) {}
  WeightInfo info() const override {
    WeightInfo info = dense_->info();
    info.shape = swapped(info.shape);
    if (!info.format) return info;
    info.dtype = dense_dtype(info);
    info.format.reset();
    info.stored_as = info.dtype == mx::float32 ? "F32" : info.dtype == mx::float16 ? "F16" : "BF16";
    info.bytes = mx::size_of(info.dtype);
    for (const int n : info.shape) info.bytes *= static_cast<size_t>(n);
    return info;
  }
  Weight load() override {
    Weight from = dense_->load();
    if (from.format) {
      array values = mx::contiguous(dequantized(from, dense_dtype(dense_->info())));
      values.eval();
      from = {from.name, from.shape, values, {}, {}, {}};
    }
    const int rows = from.shape[from.shape.size() - 2], columns = from.shape[from.shape.size() - 1];
    array out = allocated(swapped(from.shape), from.data.dtype());
    const size_t matrix = static_cast<size_t>(rows) * static_cast<size_t>(columns) * from.data.itemsize();
    const size_t count = matrix > 0 ? from.data.nbytes() / matrix : 0;
    for (size_t i = 0; i < count; ++i) {
      const std::byte* source = bytes_of(from.data) + i * matrix;
      std::byte* target = mutable_bytes(out) + i * matrix;
      switch (from.data.itemsize()) {
        case 1:
          transpose_as<uint8_t>(source, target, rows, columns);
          break;
        case 2:
          transpose_as<uint16_t>(source, target, rows, columns);
          break;
        case 4:
          transpose_as<uint32_t>(source, target, rows, columns);
          break;
        default:
          transpose_as<uint64_t>(source, target, rows, columns);
          break;
      }
    }
    from.data = out;
    from.shape = out.shape();
    return from;
  }
  std::optional<LowRank> low_rank(const LowRankOf& of) const override {
    const auto whole = dense_->low_rank(of);
    return whole ? std::optional(mlxcel::transposed(*whole)) : std::nullopt;
  }

 private:
  template <class T>
  static void transpose_as(const std::byte* from, std::byte* to, int rows, int columns) {
    transpose_matrix(reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), rows, columns);
  }
  RecipePtr dense_;
};

class Shifted final : public Recipe {
 public:
  Shifted(RecipePtr dense, float constant) : dense_(std::move(dense)), constant_(constant) {}
  WeightInfo info() const override {
    WeightInfo info = dense_->info();
    info.dtype = mx::float32;
    return info;
  }
  Weight load() override {
    Weight from = dense_->load();
    array out = allocated(from.shape, mx::float32);
    const array& data = from.data;
    float* to = out.data<float>();
    const auto add = [&](const auto* values) {
      for (size_t i = 0; i < data.size(); ++i) to[i] = static_cast<float>(values[i]) + constant_;
    };
    switch (data.dtype().val()) {
      case mx::Dtype::Val::float32:
        add(data.data<float>());
        break;
      case mx::Dtype::Val::float16:
        add(data.data<mx::float16_t>());
        break;
      case mx::Dtype::Val::bfloat16:
        add(data.data<mx::bfloat16_t>());
        break;
      default:
        fail(ErrorKind::internal, "{}: not a float tensor", from.name);
    }
    from.data = out;
    return from;
  }
  std::optional<LowRank> low_rank(const LowRankOf& of) const override { return dense_->low_rank(of); }

 private:
  RecipePtr dense_;
  float constant_;
};

}  // namespace

RecipePtr leaf(std::shared_ptr<Source> source, std::string name) {
  return std::make_shared<Leaf>(std::move(source), std::move(name));
}

RecipePtr stacked(std::vector<RecipePtr> parts, const std::vector<std::string>& names,
                  const std::string& what) {
  WeightInfo info = parts.front()->info();
  const WeightInfo first = info;
  for (size_t i = 1; i < parts.size(); ++i) {
    const WeightInfo other = parts[i]->info();
    if (other.shape != first.shape || other.format != first.format || other.dtype != first.dtype)
      fail(ErrorKind::bad_checkpoint, "{}: {} is {} {}, {} is {} {}", what, names[0], first.stored_as,
           to_string(first.shape), names[i], other.stored_as, to_string(other.shape));
    info.bytes += other.bytes;
  }
  info.shape.insert(info.shape.begin(), static_cast<int>(parts.size()));
  return std::make_shared<Stacked>(std::move(parts), std::move(info));
}

std::vector<RecipePtr> pieces(RecipePtr whole, const std::vector<int>& sizes, int groups) {
  std::vector<RecipePtr> out;
  int begin = 0;
  for (const int size : sizes) {
    if (groups == 1)
      out.push_back(std::make_shared<Piece>(whole, begin, size));
    else
      out.push_back(std::make_shared<SpreadPiece>(whole, begin, size / groups, groups));
    begin += size / groups;
  }
  return out;
}

std::vector<RecipePtr> pieces_along(RecipePtr whole, int axis, const std::vector<int>& sizes) {
  std::vector<RecipePtr> out;
  int first = 0;
  for (const int size : sizes) {
    out.push_back(std::make_shared<Picked>(whole, Entries{axis, first, 1, size}));
    first += size;
  }
  return out;
}

std::vector<RecipePtr> dealt(RecipePtr whole, int axis, int count) {
  const int each = whole->info().shape[static_cast<size_t>(axis)] / count;
  std::vector<RecipePtr> out;
  for (int i = 0; i < count; ++i)
    out.push_back(std::make_shared<Picked>(whole, Entries{axis, i, count, each}));
  return out;
}

RecipePtr unflattened(RecipePtr whole, int count) {
  return std::make_shared<Unflattened>(std::move(whole), count);
}

RecipePtr transposed(RecipePtr dense) { return std::make_shared<Transposed>(std::move(dense)); }
RecipePtr shifted(RecipePtr dense, float constant) {
  return std::make_shared<Shifted>(std::move(dense), constant);
}

}  // namespace mlxcel
