// The kinds of foreign weight, one function each: from a module's tensors to a conversion. Internal to this
// folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/foreign/foreign.h"

namespace mlxcel::foreign {

/// The tensors of one weight by what they are called behind its module's name.
class Parts {
 public:
  Parts(StoredTensors& all, std::string module) : all_(all), module_(std::move(module)) {}
  const std::string& module() const { return module_; }
  std::string name(std::string_view leaf) const { return module_ + std::string(leaf); }
  bool has(std::string_view leaf) const { return all_.contains(name(leaf)); }
  /// Moves a tensor out of the checkpoint's list; bad_checkpoint where it is missing.
  StoredTensor take(std::string_view leaf);
  std::optional<StoredTensor> take_if(std::string_view leaf);

 private:
  StoredTensors& all_;
  std::string module_;
};

Converted awq(Parts parts, const ForeignConfig& config);              // .qweight .qzeros .scales
Converted gptq(Parts parts, const ForeignConfig& config);             // the same and .g_idx
Converted packed_integers(Parts parts, const ForeignConfig& config);  // .weight_packed (I32) .weight_scale
Converted plain_integers(Parts parts);                                // .weight (I8) .weight_scale
Converted ternary(Parts parts, const ForeignConfig& config);  // .weight (U8, four rows a byte) .weight_scale
Converted packed_floats(Parts parts);                         // .weight_packed (U8) .weight_scale
Converted modelopt_floats(Parts parts);                       // .weight (U8) .weight_scale .weight_scale_2
Converted blocks_and_scales(Parts parts);                     // _blocks _scales (gpt-oss)
Converted paired_floats(Parts parts);                         // .weight (I8) .scale (DeepSeek-V4)
/// A tensor in E4M3 under `leaf`, its scales under "<leaf>_scale_inv", "<leaf>_scale" or ".scale", if any.
/// Scales that are powers of two for runs of 32 columns or more keep the codes as they are (mxfp8).
Converted fp8(Parts parts, std::string_view leaf, const ForeignConfig& config);

/// Values of a stored F32, F16 or BF16 tensor, widened.
std::vector<float> floats_of(const StoredTensor& tensor, const std::string& name);
/// The bytes of a stored tensor.
array bytes_of_stored(const StoredTensor& tensor, const std::string& name);
void expect(const StoredTensor& tensor, const std::string& name, const char* dtype, const Shape& shape);

/// Affine planes [out, in] of 4 or 8 bits from rows of codes, scales and zero points (in codes) by
/// (row, group). Groups of more than 128 columns are cut.
struct AffineRecipe {
  int out = 0, in = 0, bits = 4, group = 0;
  mx::Dtype dtype = mx::float16;                    // of scales and biases
  std::function<void(int row, uint8_t* to)> codes;  // of a row
  std::function<float(int row, int group)> scale, zero;
};
/// The group that planes will have; bad_checkpoint where none divides the columns.
int plane_group(const std::string& name, int in, int group);
Weight affine_planes(const AffineRecipe& recipe, int plane_group);
WeightInfo affine_info(int out, int in, int bits, int group, mx::Dtype dtype, std::string stored_as);

}  // namespace mlxcel::foreign
