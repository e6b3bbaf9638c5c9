// KV modes by name (features.md 5.1), and what one means for a model's layers. Thread: any. Failure:
// invalid_request naming the flag for a mode that is unknown, or that these layers cannot take.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "state/store.h"

namespace mlxcel {

enum class KvMode { fp16, f32, int8, turbo4, turbo4_asym, turbo4_delegated, turbo3_asym };

/// turbo4-delegated: keys nearer than this bring their values in 16 bits, those farther away in 4.
inline constexpr int kRecentTokens = 128;

/// "fp16", "float16", "int8", "i8", "turbo4", "turbo4-sym", "turbo4-asym", "fp16+turbo4", "turbo4-delegated",
/// "fp16+turbo4-delegated", "turbo3", "turbo3-asym", "fp16+turbo3"; "f32" is there for tests.
KvMode parse_kv_mode(std::string_view name);
/// Of --cache-type-k and --cache-type-v, llama.cpp's names included (q8_0 is int8, q4_0 and q4_1 turbo4).
KvMode kv_mode_of_types(std::string_view keys, std::string_view values);
/// The mode's first name above.
const char* to_string(KvMode mode);

struct KvModeOptions {
  KvMode mode = KvMode::fp16;
  int boundary_values = 2;      // so many layers at either end keep 16-bit values in turbo modes
  bool skip_last_layer = true;  // the last layer keeps 16 bits
};

struct KvPlan {
  std::vector<KvFormat> formats;  // one a slot
  std::vector<int> recent;        // for keep_recent(); empty: no slot has any
  int applied = 0;                // slots whose keys or values are in the mode
  std::string label;              // "turbo4: applied to 29 of 30 layers"
};

/// `dense`: the type of what is not coded (f16, bf16 or f32). `layers`: of the model, for the label; `model`:
/// for messages.
KvPlan plan_kv(const StateLayout& layout, const KvModeOptions& options, mx::Dtype dense, int layers,
               const std::string& model);

}  // namespace mlxcel
