// The bodies of the recurrences (recurrent.h), one table a tier. Plain C types only.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mlxcel::kernels {

/// One row's tokens. Pointers are at the row's first token and the row's own state.
struct ConvRow {
  const float* x;       // [count, channels]
  const float* weight;  // [channels, taps]
  const float* bias;    // [channels] or null
  const float* before;  // [taps - 1, channels]
  float* out;           // [count, channels]
  float* after;         // [taps - 1, channels]
  int count, channels, taps, activation;
  ptrdiff_t x_stride = 0;  // from token to token of x; 0: channels
};

struct ScanRow {
  const float* x;       // [count, heads, head_dim]
  const float* dt;      // [count, heads]
  const float* a;       // [heads]
  const float* b;       // [count, groups, state_dim]
  const float* c;       // [count, groups, state_dim]
  const float* d;       // [heads]
  const float* before;  // [heads, head_dim, state_dim]
  float* out;           // [count, heads, head_dim]
  float* after;         // [heads, head_dim, state_dim]
  int count, heads, head_dim, groups, state_dim;
};

struct SelectiveRow {
  const float* x;       // [count, channels]
  const float* dt;      // [count, channels]
  const float* a;       // [channels, state_dim]
  const float* b;       // [count, state_dim]
  const float* c;       // [count, state_dim]
  const float* d;       // [channels]
  const float* before;  // [channels, state_dim]
  float* out;           // [count, channels]
  float* after;         // [channels, state_dim]
  int count, channels, state_dim;
};

struct DeltaRow {
  const float *decay, *read, *write, *key, *query;  // [count, heads, key_dim]
  const float* value;                               // [count, heads, value_dim]
  const float* before;                              // [heads, value_dim, key_dim]
  float* out;                                       // [count, heads, value_dim]
  float* after;                                     // [heads, value_dim, key_dim]
  int count, heads, key_dim, value_dim;
};

struct SumRow {
  const float* x;       // [count, channels]
  const float* decay;   // [count, channels]
  const float* before;  // [channels]
  float* out;           // [count, channels]
  float* after;         // [channels]
  int count, channels;
};

inline constexpr int kConvBlock = 64;  // channels of one task

struct RecurrentBodies {
  /// Channels block * kConvBlock and on.
  void (*conv)(const ConvRow& row, int block);
  void (*scan)(const ScanRow& row, int head);
  /// Channels block * kConvBlock and on.
  void (*selective)(const SelectiveRow& row, int block);
  void (*delta)(const DeltaRow& row, int head);
  void (*sum)(const SumRow& row);
};

const RecurrentBodies& recurrent_generic();
#if defined(__x86_64__)
const RecurrentBodies& recurrent_avx2();
const RecurrentBodies& recurrent_avx512();
#endif

}  // namespace mlxcel::kernels
