// Panels: the rows that a product reads, as its bodies read them (isa/matmul.h). Which kind a segment wants,
// how large it is, who makes it. Part of matmul.cpp. Thread: any.
#pragma once

#include <cstddef>

#include "kernels/packed.h"

namespace mlxcel::kernels {

// Up to so many values it is faster for each worker to quantise its own panel than to meet over a shared one.
constexpr size_t kOwnPanel = 4096;
// Rows quantised at a time: bounds the panel's memory (1024 rows of 16384 columns are 37 MB).
constexpr int kMostRows = 1024;

enum PanelKind { kPairPanel, kBytePanel, kPlanePanel, kFloatPanel, kPanelKinds };

inline size_t panel_row_bytes(PanelKind kind, int columns) {
  const size_t chunks = static_cast<size_t>(columns) / kChunk;
  switch (kind) {
    case kPairPanel:
    case kPlanePanel:
      return chunks * 4 * (kChunk / 2 + 2);
    case kBytePanel:
      return chunks * 4 * (kChunk / 4 + 2);
    default:
      return static_cast<size_t>(columns) * sizeof(float);
  }
}

/// `rows`: the most that a job of the batch has.
inline PanelKind panel_of(const Segment& segment, const Matrix::Storage& weights, Precision precision,
                          int rows) {
  if (segment.dense || precision == Precision::exact || segment.layout.code == kFloat8) return kFloatPanel;
  if (precision == Precision::fast)
    return weights.bodies->bytes_serve(segment.layout.code) ? kBytePanel : kPairPanel;
  return segment.layout.code == kCode4 && rows <= weights.bodies->most_planes ? kPlanePanel : kPairPanel;
}

/// Whether each worker makes its own panel.
inline bool own_panel(int rows, int columns) {
  return rows == 1 || static_cast<size_t>(rows) * static_cast<size_t>(columns) <= kOwnPanel;
}

}  // namespace mlxcel::kernels
