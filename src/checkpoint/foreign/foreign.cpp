#include "checkpoint/foreign/foreign.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "checkpoint/foreign/kinds.h"
#include "tensor/external.h"

namespace mlxcel {

namespace {

using foreign::Parts;

/// The scales of activations and of KV caches, which are not quantised here.
bool of_activations(const std::string& name) {
  constexpr std::array kEndings = {".input_scale",  ".activation_scale",  ".input_global_scale",
                                   ".output_scale", ".k_scale",           ".v_scale",
                                   ".q_scale",      ".prob_output_scale", ".input_zero_point"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](const char* ending) { return name.ends_with(ending); });
}

std::optional<std::string> without(const std::string& name, std::string_view ending) {
  if (!name.ends_with(ending) || name.size() == ending.size()) return std::nullopt;
  return name.substr(0, name.size() - ending.size());
}

class Union final : public Source {
 public:
  Union(std::shared_ptr<Source> plain, Conversions conversions)
      : plain_(std::move(plain)), conversions_(std::move(conversions)) {
    for (const auto& [name, converted] : conversions_)
      if (plain_->find(name))
        fail(ErrorKind::bad_checkpoint, "{}: stored twice, once quantised as {}", name,
             converted.info.stored_as);
  }
  std::vector<std::string> names() const override {
    auto all = plain_->names();
    for (const auto& [name, converted] : conversions_) all.push_back(name);
    std::sort(all.begin(), all.end());
    return all;
  }
  std::optional<WeightInfo> find(const std::string& name) const override {
    const auto found = conversions_.find(name);
    return found == conversions_.end() ? plain_->find(name) : std::optional(found->second.info);
  }
  Weight load(const std::string& name) override {
    const auto found = conversions_.find(name);
    if (found == conversions_.end()) return plain_->load(name);
    Weight weight = found->second.load();
    weight.name = name;
    return weight;
  }

 private:
  std::shared_ptr<Source> plain_;
  Conversions conversions_;
};

/// One step over all names: converts what a name is the first part of.
class Taker {
 public:
  Taker(StoredTensors& tensors, const ForeignConfig& config) : tensors_(tensors), config_(config) {}

  Conversions run() {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    for (const std::string& name : names) {
      const auto found = tensors_.find(name);
      if (found != tensors_.end()) consider(name, found->second);
    }
    return std::move(done_);
  }

 private:
  void put(const std::string& name, Converted converted) { done_.emplace(name, std::move(converted)); }

  void consider(const std::string& name, const StoredTensor& tensor) {
    if (const auto module = without(name, ".qweight")) return put(*module + ".weight", quantiser(*module));
    if (const auto module = without(name, ".weight_packed"))
      return put(*module + ".weight", tensor.dtype == "U8"
                                          ? foreign::packed_floats(Parts(tensors_, *module))
                                          : foreign::packed_integers(Parts(tensors_, *module), config_));
    if (const auto module = without(name, "_blocks"); module && tensor.dtype == "U8")
      return put(*module + ".weight", foreign::blocks_and_scales(Parts(tensors_, *module)));
    const auto module = without(name, ".weight");
    if (module && tensor.dtype == "I8" && tensors_.contains(*module + ".weight_scale"))
      return put(name, foreign::plain_integers(Parts(tensors_, *module)));
    if (module && tensor.dtype == "I8" && tensors_.contains(*module + ".scale"))
      return put(name, foreign::paired_floats(Parts(tensors_, *module)));
    if (module && tensor.dtype == "U8" && config_.method == "bitnet" &&
        tensors_.contains(*module + ".weight_scale"))
      return put(name, foreign::ternary(Parts(tensors_, *module), config_));
    if (module && tensor.dtype == "U8" && tensors_.contains(*module + ".weight_scale_2"))
      return put(name, foreign::modelopt_floats(Parts(tensors_, *module)));
    if (tensor.dtype != "F8_E4M3" || is_scale(name)) return;
    if (module) return put(name, foreign::fp8(Parts(tensors_, *module), ".weight", config_));
    put(name, foreign::fp8(Parts(tensors_, name), "", config_));
  }

  static bool is_scale(const std::string& name) {
    return name.ends_with("_scale") || name.ends_with("_scale_inv");
  }

  Converted quantiser(const std::string& module) {
    if (config_.method == "awq") return foreign::awq(Parts(tensors_, module), config_);
    if (config_.method == "gptq") return foreign::gptq(Parts(tensors_, module), config_);
    fail(ErrorKind::bad_checkpoint, "{}.qweight: packed codes of AWQ or GPTQ, but {} says {}", module,
         config_.where,
         config_.method.empty() ? "nothing of a quant_method" : "quant_method " + config_.method);
  }

  StoredTensors& tensors_;
  const ForeignConfig& config_;
  Conversions done_;
};

}  // namespace

ForeignConfig ForeignConfig::from(const Config& config) {
  Config block = config.child("quantization_config");
  if (block.empty()) block = config.child("text_config").child("quantization_config");
  if (block.empty()) block = config.child("compression_config");
  ForeignConfig out;
  out.where = config.where() + ": quantization_config";
  // MLX's own exports may keep the block of what they were made from.
  if (!block.has("quant_method") || !config.child("quantization").empty()) return out;
  out.method = block.get<std::string>("quant_method");
  constexpr std::array kKnown = {"awq", "gptq", "fp8", "mxfp4", "compressed-tensors", "modelopt", "bitnet"};
  if (std::find(kKnown.begin(), kKnown.end(), out.method) == kKnown.end())
    fail(ErrorKind::unsupported,
         "{}.quant_method \"{}\" is not supported: expected awq, gptq, fp8, mxfp4, compressed-tensors, "
         "modelopt or "
         "bitnet",
         out.where, out.method);
  if (out.method == "awq") {
    const auto version = block.get<std::string>("version", "gemm");
    if (version != "gemm" && version != "GEMM")
      fail(ErrorKind::unsupported, "{}.version \"{}\" is not supported: expected gemm", out.where, version);
  }
  if (out.method == "gptq") {
    const auto form = block.get<std::string>("checkpoint_format", "gptq");
    if (form != "gptq" && form != "gptq_v2")
      fail(ErrorKind::unsupported, "{}.checkpoint_format \"{}\" is not supported: expected gptq or gptq_v2",
           out.where, form);
    out.raised_zeros = form == "gptq";
  }
  if (out.method == "awq" || out.method == "gptq") {
    out.bits = block.integer(block.has("w_bit") ? "w_bit" : "bits", 1, 32, 4);
    // -1 stands for one group, and integers of configs have no sign.
    const float group = block.get(block.has("q_group_size") ? "q_group_size" : "group_size", 128.0f);
    if (!(group == -1.0f || (group >= 1.0f && group <= 65536.0f)))
      fail(ErrorKind::bad_checkpoint, "{}.group_size: expected 1 to 65536 or -1, found {}", out.where, group);
    out.group = group < 0.0f ? 0 : static_cast<int>(group);
  }
  if (out.method == "bitnet") {
    const auto kind = block.get<std::string>("linear_class", "bitlinear");
    if (kind != "bitlinear" && kind != "autobitlinear")
      fail(ErrorKind::unsupported,
           "{}.linear_class \"{}\" is not supported: expected bitlinear or autobitlinear", out.where, kind);
    if (block.get("use_rms_norm", false))
      fail(ErrorKind::unsupported, "{}.use_rms_norm is not supported", out.where);
    out.divided = kind == "bitlinear";
  }
  if (block.has("weight_block_size")) {
    const auto sizes = block.get<std::vector<int>>("weight_block_size");
    if (sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1)
      fail(ErrorKind::bad_checkpoint, "{}.weight_block_size: expected two positive numbers, found {}",
           out.where, sizes.size());
    out.block_rows = sizes[0];
    out.block_columns = sizes[1];
  }
  const Config groups = block.child("config_groups");
  for (const std::string& key : groups.keys()) {
    const Config weights = groups.child(key).child("weights");
    if (weights.has("num_bits")) out.bits = weights.integer("num_bits", 1, 32);
  }
  return out;
}

Conversions take_foreign(StoredTensors& tensors, const ForeignConfig& config,
                         std::vector<std::string>& warnings) {
  auto done = Taker(tensors, config).run();
  if (!done.empty() || !config.method.empty())
    std::erase_if(tensors, [](const auto& entry) { return of_activations(entry.first); });
  for (const auto& [name, tensor] : tensors)
    if (name.ends_with(".weight_scale_inv") || name.ends_with(".weight_scale") ||
        name.ends_with(".weight_scale_2") || name.ends_with(".qzeros") || name.ends_with(".g_idx"))
      fail(ErrorKind::bad_checkpoint,
           "{}: scales of a quantised weight, but the weight itself is not stored as one", name);
  if (done.empty() && (config.method == "awq" || config.method == "gptq"))
    fail(ErrorKind::bad_checkpoint, "{} says {}, but no tensor is stored so (\"*.qweight\")", config.where,
         config.method);
  if (done.empty() && !config.method.empty())
    warnings.push_back(fmt::format("{} says {}, but no tensor is stored so", config.where, config.method));
  return done;
}

std::shared_ptr<Source> with_conversions(std::shared_ptr<Source> source, Conversions conversions) {
  if (conversions.empty()) return source;
  return std::make_shared<Union>(std::move(source), std::move(conversions));
}

namespace foreign {

StoredTensor Parts::take(std::string_view leaf) {
  auto found = take_if(leaf);
  if (!found)
    fail(ErrorKind::bad_checkpoint, "{}: missing beside the other tensors of {}", name(leaf), module_);
  return *std::move(found);
}

std::optional<StoredTensor> Parts::take_if(std::string_view leaf) {
  auto node = all_.extract(name(leaf));
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

array bytes_of_stored(const StoredTensor& tensor, const std::string& name) {
  if (tensor.bytes > static_cast<uint64_t>(std::numeric_limits<int>::max()) * 64)
    fail(ErrorKind::bad_checkpoint, "{}: {} bytes are too many", name, tensor.bytes);
  array out = allocated({static_cast<int>((tensor.bytes + 63) / 64), 64}, mx::uint8);
  if (tensor.bytes == 0) return allocated({0}, mx::uint8);
  const auto range = tensor.file->map(tensor.offset, tensor.bytes);
  std::memcpy(mutable_bytes(out), range->data(), tensor.bytes);
  return out;
}

std::vector<float> floats_of(const StoredTensor& tensor, const std::string& name) {
  const array stored = load_stored(tensor, name);
  std::vector<float> values(stored.size());
  const auto widen = [&](const auto* from) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(from[i]);
  };
  if (tensor.dtype == "F32")
    widen(stored.data<float>());
  else if (tensor.dtype == "F16")
    widen(stored.data<mx::float16_t>());
  else if (tensor.dtype == "BF16")
    widen(stored.data<mx::bfloat16_t>());
  else
    fail(ErrorKind::bad_checkpoint, "{}: expected F32, F16 or BF16, checkpoint has {}", name, tensor.dtype);
  return values;
}

void expect(const StoredTensor& tensor, const std::string& name, const char* dtype, const Shape& shape) {
  if (tensor.dtype != dtype || tensor.shape != shape)
    fail(ErrorKind::bad_checkpoint, "{}: expected {} {}, checkpoint has {} {}", name, dtype, to_string(shape),
         tensor.dtype, to_string(tensor.shape));
}

int plane_group(const std::string& name, int in, int group) {
  for (const int size : {128, 64, 32})
    if (group % size == 0 && in % size == 0) return group == 64 || group == 32 ? group : size;
  fail(ErrorKind::unsupported, "{}: groups of {} columns are not supported: expected a multiple of 32", name,
       group);
}

WeightInfo affine_info(int out, int in, int bits, int group, mx::Dtype dtype, std::string stored_as) {
  const auto values = static_cast<size_t>(out) * static_cast<size_t>(in);
  return {.shape = {out, in},
          .dtype = dtype,
          .format = QuantFormat{QuantMode::affine, bits, group},
          .stored_as = std::move(stored_as),
          .bytes = values * static_cast<size_t>(bits) / 8 +
                   2 * mx::size_of(dtype) * values / static_cast<size_t>(group)};
}

Weight affine_planes(const AffineRecipe& r, int planes) {
  const int each = 32 / r.bits, words = r.in / each, groups = r.in / planes;
  array data = allocated({r.out, words}, mx::uint32);
  array scales = allocated({r.out, groups}, r.dtype), biases = allocated({r.out, groups}, r.dtype);
  auto* word = data.data<uint32_t>();
  std::vector<uint8_t> codes(static_cast<size_t>(r.in));
  for (int row = 0; row < r.out; ++row) {
    r.codes(row, codes.data());
    const uint8_t* code = codes.data();
    for (int w = 0; w < words; ++w) {
      uint32_t packed = 0;
      for (int i = 0; i < each; ++i) packed |= uint32_t{*code++} << (r.bits * i);
      *word++ = packed;
    }
  }
  const auto fill = [&](auto* scale, auto* bias) {
    using T = std::remove_pointer_t<decltype(scale)>;
    for (int row = 0; row < r.out; ++row)
      for (int g = 0; g < groups; ++g) {
        const int own = g * planes / r.group;
        const float factor = r.scale(row, own);
        *scale++ = static_cast<T>(factor);
        *bias++ = static_cast<T>(-r.zero(row, own) * factor);
      }
  };
  if (r.dtype == mx::float16)
    fill(scales.data<mx::float16_t>(), biases.data<mx::float16_t>());
  else if (r.dtype == mx::bfloat16)
    fill(scales.data<mx::bfloat16_t>(), biases.data<mx::bfloat16_t>());
  else
    fill(scales.data<float>(), biases.data<float>());
  return {"", {r.out, r.in}, data, scales, biases, QuantFormat{QuantMode::affine, r.bits, planes}};
}

}  // namespace foreign

}  // namespace mlxcel
