#include "engine/front/dense.h"

#include <mlx/ops.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/formats/safetensors.h"

namespace mlxcel {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr int kMaxWidth = 1 << 20;

nlohmann::json read_json(const std::filesystem::path& path) {
  auto json = nlohmann::json::parse(read_file(path, kMaxConfigBytes), nullptr, false);
  if (json.is_discarded()) fail(ErrorKind::bad_checkpoint, "{}: not JSON", path.string());
  return json;
}

std::string word(const nlohmann::json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string()
             ? object[key].get<std::string>()
             : "";
}

int width(const nlohmann::json& config, const char* key, const std::filesystem::path& path) {
  const bool there = config.is_object() && config.contains(key) && config[key].is_number_integer();
  const auto value = there ? config[key].get<int64_t>() : int64_t{0};
  if (value < 1 || value > kMaxWidth)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected 1 to {}, found {}", path.string(), key, kMaxWidth,
         value);
  return static_cast<int>(value);
}

std::vector<float> values_of(const StoredTensors& tensors, const std::string& name, const Shape& shape,
                             const std::filesystem::path& folder) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) fail(ErrorKind::bad_checkpoint, "{}: {}: missing", folder.string(), name);
  if (found->second.shape != shape)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected {}, found {}", folder.string(), name, to_string(shape),
         to_string(found->second.shape));
  array values = mx::contiguous(mx::astype(load_stored(found->second, name), mx::float32));
  values.eval();
  return {values.data<float>(), values.data<float>() + values.size()};
}

DenseLayer read_layer(const std::filesystem::path& folder, int in) {
  const auto path = folder / "config.json";
  const auto config = read_json(path);
  DenseLayer layer;
  layer.in = width(config, "in_features", path);
  layer.out = width(config, "out_features", path);
  if (layer.in != in)
    fail(ErrorKind::bad_checkpoint, "{}: in_features: expected {}, the width before it, found {}",
         path.string(), in, layer.in);
  const auto activation = word(config, "activation_function");
  layer.tanh = activation.ends_with(".Tanh");
  if (!layer.tanh && !activation.empty() && !activation.ends_with(".Identity"))
    fail(ErrorKind::unsupported, "{}: activation_function \"{}\": expected Identity or Tanh", path.string(),
         activation);
  std::vector<std::string> warnings;
  size_t bytes = 0;
  const auto tensors = read_safetensors_folder(folder, warnings, bytes);
  layer.weight = values_of(tensors, "linear.weight", {layer.out, layer.in}, folder);
  const bool biased = config.contains("bias") && config["bias"].is_boolean() && config["bias"].get<bool>();
  if (biased) layer.bias = values_of(tensors, "linear.bias", {layer.out}, folder);
  return layer;
}

}  // namespace

std::vector<DenseLayer> read_dense_layers(const Checkpoint& checkpoint, int hidden) {
  std::vector<DenseLayer> layers;
  if (checkpoint.format != Checkpoint::Format::safetensors || checkpoint.path.empty()) return layers;
  const auto path = checkpoint.path / "modules.json";
  if (!std::filesystem::exists(path)) return layers;
  const auto modules = read_json(path);
  if (!modules.is_array()) fail(ErrorKind::bad_checkpoint, "{}: expected an array of modules", path.string());
  int in = hidden;
  for (const auto& module : modules) {
    if (!word(module, "type").ends_with(".Dense")) continue;
    const std::filesystem::path name = word(module, "path");
    if (name.is_absolute() || name.string().find("..") != std::string::npos)
      fail(ErrorKind::bad_checkpoint, "{}: path \"{}\" leaves the model", path.string(), name.string());
    layers.push_back(read_layer(checkpoint.path / name, in));
    in = layers.back().out;
  }
  return layers;
}

std::vector<double> through(std::span<const DenseLayer> layers, std::vector<double> x) {
  for (const DenseLayer& layer : layers) {
    std::vector<double> y(static_cast<size_t>(layer.out));
    const float* row = layer.weight.data();
    for (size_t i = 0; i < y.size(); ++i, row += layer.in) {
      double sum = layer.bias.empty() ? 0.0 : static_cast<double>(layer.bias[i]);
      for (size_t j = 0; j < x.size(); ++j) sum += static_cast<double>(row[j]) * x[j];
      y[i] = layer.tanh ? std::tanh(sum) : sum;
    }
    x = std::move(y);
  }
  return x;
}

}  // namespace mlxcel
