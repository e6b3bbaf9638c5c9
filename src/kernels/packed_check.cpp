#include <algorithm>

#include "base/error.h"
#include "kernels/packed.h"

namespace mlxcel::kernels {
namespace {

bool is_float(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

[[noreturn]] void bad(const std::string& name, const std::string& what) {
  fail(ErrorKind::bad_checkpoint, "{}: {}", name, what);
}

/// Shape and format alone.
void check_form(const WeightForm& form) {
  const auto& shape = form.shape;
  if (shape.size() != 2 && shape.size() != 3)
    bad(form.name,
        fmt::format("expected [out, in] or [experts, out, in], checkpoint has {}", to_string(shape)));
  for (const auto extent : shape)
    if (extent <= 0)
      bad(form.name, fmt::format("expected positive extents, checkpoint has {}", to_string(shape)));
  if (!form.format) {
    if (!is_float(form.dtype)) bad(form.name, "expected f32, f16 or bf16 elements");
    return;
  }
  const QuantFormat& f = *form.format;
  const auto one_of = [](int value, std::initializer_list<int> list) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  bool known = false;
  switch (f.mode) {
    case QuantMode::affine:
      known = one_of(f.bits, {2, 3, 4, 5, 6, 8}) && one_of(f.group_size, {32, 64, 128});
      break;
    case QuantMode::mxfp4:
      known = f.bits == 4 && f.group_size == 32;
      break;
    case QuantMode::nvfp4:
      known = f.bits == 4 && f.group_size == 16;
      break;
    case QuantMode::mxfp8:
      known = f.bits == 8 && f.group_size == 32;
      break;
  }
  if (!known)
    bad(form.name, fmt::format("{} with {} bits in groups of {} is not a format we know", to_string(f.mode),
                               f.bits, f.group_size));
  if (shape.back() % f.group_size != 0)
    bad(form.name, fmt::format("width {} is not a multiple of the group {}", shape.back(), f.group_size));
  if (f.mode == QuantMode::affine && !is_float(form.dtype))
    bad(form.name, "scales: expected f32, f16 or bf16");
}

}  // namespace

WeightForm form_of(const Weight& weight) {
  return {weight.name, weight.shape, weight.format,
          weight.format && weight.scales ? weight.scales->dtype() : weight.data.dtype()};
}

void check_weight(const Weight& weight) {
  const auto bad = [&](const std::string& what) { kernels::bad(weight.name, what); };
  const auto& shape = weight.shape;
  const auto check_array = [&](const char* what, const array& a, const Shape& want) {
    if (a.shape() != want)
      bad(fmt::format("{}: expected {}, checkpoint has {}", what, to_string(want), to_string(a.shape())));
    if (!a.is_available())
      fail(ErrorKind::internal, "{}: {} must be evaluated before it is packed", weight.name, what);
  };
  if (!weight.format) {
    check_form(form_of(weight));
    check_array("weight", weight.data, shape);
    return;
  }
  const QuantFormat& f = *weight.format;
  if (!weight.scales) bad("scales are missing");
  check_form(form_of(weight));
  const int columns = shape.back();
  Shape words = shape, groups = shape;
  words.back() = static_cast<int>(static_cast<int64_t>(columns) * f.bits / 32);
  groups.back() = columns / f.group_size;
  check_array("weight", weight.data, words);
  if (weight.data.dtype() != mx::uint32) bad("expected uint32 words of codes");
  check_array("scales", *weight.scales, groups);
  if (f.mode == QuantMode::affine) {
    if (!weight.biases) bad("biases are missing");
    check_array("biases", *weight.biases, groups);
    if (weight.biases->dtype() != weight.scales->dtype()) bad("biases: expected the dtype of scales");
  } else {
    if (weight.scales->dtype() != mx::uint8) bad("scales: expected uint8");
    if (weight.biases) bad(fmt::format("{} has no biases, checkpoint has some", to_string(f.mode)));
  }
}

std::shared_ptr<Matrix::Storage> make_storage(std::span<const WeightForm> forms, bool gated) {
  if (forms.empty()) fail(ErrorKind::internal, "a matrix needs at least one weight");
  const WeightForm& head = forms.front();
  int64_t rows = 0;
  for (const WeightForm& form : forms) {
    check_form(form);
    const auto &shape = form.shape, &want = head.shape;
    if (shape.size() != want.size() || shape.back() != want.back() ||
        (want.size() == 3 && shape[0] != want[0]) || (gated && shape != want))
      fail(ErrorKind::bad_checkpoint, "{}: {} cannot stand beside {} {}", form.name, to_string(shape),
           head.name, to_string(want));
    rows += shape[shape.size() - 2];
  }
  if (rows > (1 << 28))
    fail(ErrorKind::bad_checkpoint, "{}: {} output rows are beyond what one matrix holds", head.name, rows);
  auto storage = std::make_shared<Matrix::Storage>();
  storage->mode = kernel_mode();
  storage->rows = static_cast<int>(rows);
  storage->columns = head.shape.back();
  storage->experts = head.shape.size() == 3 ? head.shape[0] : 0;
  storage->gate_up = gated;
  return storage;
}

}  // namespace mlxcel::kernels
