// A program's operations whose rows need no others. Part of program.cpp. Thread: workers of the pool.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/isa/rowwise.h"
#include "kernels/matmul.h"
#include "kernels/packed.h"
#include "kernels/phases.h"

namespace mlxcel::kernels {

/// Each row is a task.
class RowWork final : public PhaseWork {
 public:
  enum Kind { kLookup, kAngles, kAdd, kColumns, kTimes, kTurn };
  Kind kind = kAdd;
  const Matrix::Storage* table = nullptr;
  const int* ids = nullptr;  // of rows, or positions
  const float* frequencies = nullptr;
  float scale = 1.0f;
  const RowNorm* norm = nullptr;
  const float* a = nullptr;
  const float* b = nullptr;
  float* out = nullptr;
  ptrdiff_t width = 0;
  ptrdiff_t parts = 0, b_width = 0;          // times: values of a row of b, and how far apart rows are
  Activation activation = Activation::none;  // times: of b
  int from = 0, heads = 0, each = 0;         // columns; turn: of a, a head's begin `each` apart
  float clip = 0.0f;
  const float* weights = nullptr;
  ptrdiff_t a_width = 0;  // turn: of a row of a
  int wide = 0, to_from = 0, to_each = 0, turned = 0;
  bool interleaved = false;

  void run(int, int, int begin, int end) override {
    for (ptrdiff_t row = begin; row < end; ++row) {
      float* const to = out + row * width;
      if (kind == kLookup)
        look_up(ids[row], to);
      else if (kind == kAngles)
        turn(ids[row], to);
      else if (kind == kColumns)
        columns(to + from);
      else if (kind == kTimes)
        times(a + row * width, b + row * b_width, to);
      else if (kind == kTurn)
        turn_heads(a + row * a_width + from, b ? b + row * 2 * turned : nullptr, to + to_from);
      else
        add(row, to);
    }
  }

 private:
  void look_up(int id, float* to) const {
    decode_row(*table, id, to);
    if (scale == 1.0f) return;
    for (ptrdiff_t i = 0; i < width; ++i) to[i] *= scale;
  }
  void turn(int position, float* to) const {
    const ptrdiff_t half = width / 2;
    for (ptrdiff_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequencies[i];
      to[i] = std::cos(angle) * scale;
      to[half + i] = std::sin(angle) * scale;
    }
  }
  void add(ptrdiff_t row, float* to) const {
    const float* const source = b + row * width;
    if (norm)
      apply_norm(source, 1, static_cast<int>(width), to);
    else
      std::memcpy(to, source, static_cast<size_t>(width) * sizeof(float));
    if (scale != 1.0f)
      for (ptrdiff_t i = 0; i < width; ++i) to[i] *= scale;
    if (!a) return;
    for (ptrdiff_t i = 0; i < width; ++i) to[i] = a[row * width + i] + to[i];
  }
  void apply_norm(const float* x, int count, int size, float* to) const {
    const auto& body = rowwise_bodies();
    if (norm->layer)
      body.layer_norm(x, norm->weight, norm->bias, norm->eps, count, size, to);
    else
      body.rms_norm(x, norm->weight, norm->eps, norm->offset, count, size, to);
  }
  void columns(float* x) const {
    const int count = heads * each;
    if (clip > 0.0f)
      for (int i = 0; i < count; ++i) x[i] = x[i] < -clip ? -clip : x[i] > clip ? clip : x[i];
    if (norm) apply_norm(x, heads, each, x);
    if (weights)
      for (int i = 0; i < count; ++i) x[i] *= weights[i];
  }
  /// `wide` values of each head go over, the first ones rotated.
  void turn_heads(const float* x, const float* turned_by, float* to) const {
    for (int h = 0; h < heads; ++h, x += each, to += to_each)
      if (turned_by)
        rowwise_bodies().rope(x, turned_by, turned_by + turned, 1, wide, turned, interleaved, to);
      else if (x != to)
        std::memcpy(to, x, static_cast<size_t>(wide) * sizeof(float));
  }
  void times(const float* x, const float* by, float* to) const {
    static thread_local std::vector<float> active;
    if (activation != Activation::none) {
      active.resize(static_cast<size_t>(parts));
      rowwise_bodies().activate(by, static_cast<int>(activation), active.size(), active.data());
      by = active.data();
    }
    if (parts == width) {
      for (ptrdiff_t i = 0; i < width; ++i) to[i] = x[i] * by[i];
      return;
    }
    const ptrdiff_t size = width / parts;
    for (ptrdiff_t p = 0; p < parts; ++p, x += size, to += size)
      for (ptrdiff_t i = 0; i < size; ++i) to[i] = x[i] * by[p];
  }
};

}  // namespace mlxcel::kernels
