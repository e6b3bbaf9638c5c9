// The folder itself: shards with an index, config.json, tokenizer and template; in place by rename.
#include <mlx/transforms.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/formats/safetensors_writer.h"
#include "checkpoint/values.h"
#include "models/export.h"
#include "tensor/external.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;  // sorted keys, as mlx-lm writes them

struct Stored {
  std::string name;
  std::string dtype;
  Shape shape;
};

/// The planes a tensor is written as.
std::vector<Stored> planes_of(const ExportTensor& tensor) {
  if (!tensor.format) return {{tensor.name, safetensors_dtype(tensor.dtype), tensor.shape}};
  const QuantFormat& format = *tensor.format;
  const std::string module = tensor.name.substr(0, tensor.name.size() - std::string_view(".weight").size());
  Shape codes = tensor.shape, groups = tensor.shape;
  codes.back() = static_cast<int>(int64_t{tensor.shape.back()} * format.bits / 32);
  groups.back() = tensor.shape.back() / format.group_size;
  if (format.mode != QuantMode::affine)
    return {{tensor.name, "U32", codes}, {module + ".scales", "U8", groups}};
  const std::string type = safetensors_dtype(tensor.dtype);
  return {
      {tensor.name, "U32", codes}, {module + ".scales", type, groups}, {module + ".biases", type, groups}};
}

/// The arrays of the planes, evaluated.
std::vector<array> convert(const Weight& weight, const ExportTensor& tensor) {
  array dense = weight.data;
  if (weight.quantized()) dense = float_values(weight);
  const bool values = weight.quantized() || mx::issubdtype(weight.data.dtype(), mx::floating);
  if (values && dense.dtype() != tensor.dtype) dense = mx::astype(dense, tensor.dtype);
  std::vector<array> out{dense};
  if (tensor.format)
    out = mx::quantize(dense, tensor.format->group_size, tensor.format->bits, to_string(tensor.format->mode));
  for (array& plane : out) plane = mx::contiguous(plane);
  mx::eval(out);
  return out;
}

/// Which tensors share a file: filled in order up to the limit.
std::vector<std::vector<const ExportTensor*>> shards_of(const ExportPlan& plan, std::uint64_t limit) {
  std::vector<std::vector<const ExportTensor*>> shards(1);
  std::uint64_t bytes = 0;
  for (const ExportTensor& tensor : plan.tensors) {
    if (bytes > 0 && bytes + tensor.bytes > limit) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(&tensor);
    bytes += tensor.bytes;
  }
  return shards;
}

Json entry_of(const QuantFormat& format) {
  return {{"bits", format.bits}, {"group_size", format.group_size}, {"mode", to_string(format.mode)}};
}

std::string config_text(const Checkpoint& checkpoint, const ExportPlan& plan, const ExportOptions& options) {
  Json config = Json::parse(checkpoint.config.dump(), nullptr, false);
  if (!config.is_object())
    fail(ErrorKind::unsupported, "{}: cannot be written anew", checkpoint.config.where());
  config.erase("quantization");
  config.erase("quantization_config");
  config.erase("_name_or_path");
  if (config.contains("text_config") && config["text_config"].is_object())
    config["text_config"].erase("quantization");
  if (!options.dequantize) {
    Json block = entry_of(options.format);
    for (const ExportTensor& tensor : plan.tensors)
      if (tensor.format && (*tensor.format != options.format || !options.recipe.empty()))
        block[tensor.name.substr(0, tensor.name.size() - std::string_view(".weight").size())] =
            entry_of(*tensor.format);
    config["quantization"] = block;
    config["quantization_config"] = block;
  }
  std::optional<mx::Dtype> dtype = options.dtype;
  if (checkpoint.format == Checkpoint::Format::gguf && !dtype) dtype = mx::float16;
  if (dtype) {
    const char* word = *dtype == mx::float32 ? "float32" : *dtype == mx::float16 ? "float16" : "bfloat16";
    if (config.contains("dtype")) config["dtype"] = word;
    config["torch_dtype"] = word;
  }
  if (checkpoint.format == Checkpoint::Format::gguf && !checkpoint.eos_ids.empty())
    config["eos_token_id"] =
        checkpoint.eos_ids.size() == 1 ? Json(checkpoint.eos_ids[0]) : Json(checkpoint.eos_ids);
  return config.dump(4) + "\n";
}

bool is_companion(const std::string& name) {
  if (name.starts_with(".") || name == "config.json" || name.ends_with(".index.json")) return false;
  for (const char* ending : {".json", ".jinja", ".model", ".tiktoken", ".txt", ".md", ".py"})
    if (name.ends_with(ending)) return true;
  return name.starts_with("LICENSE") || name.starts_with("NOTICE");
}

void copy_companions(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && is_companion(name))
      fs::copy_file(entry.path(), to / name, fs::copy_options::overwrite_existing);
    // What sentence embedders keep beside the model.
    if (entry.is_directory() && fs::exists(entry.path() / "config.json")) {
      fs::create_directories(to / name);
      fs::copy_file(entry.path() / "config.json", to / name / "config.json",
                    fs::copy_options::overwrite_existing);
    }
  }
}

void write_text(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

class Folder {
 public:
  explicit Folder(const fs::path& target)
      : target_(target), partial_(target.string() + fmt::format(".partial-{}", ::getpid())) {
    std::error_code error;
    fs::remove_all(partial_, error);
    sweep();
    fs::create_directories(partial_, error);
    if (error)
      fail(ErrorKind::internal, "{}: the folder cannot be made: {}", partial_.string(), error.message());
  }
  ~Folder() {
    std::error_code ignored;
    if (!published_) fs::remove_all(partial_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return partial_; }

  void publish(bool replace) {
    std::error_code error;
    const fs::path old = target_.string() + fmt::format(".old-{}", ::getpid());
    const bool there = fs::exists(target_, error);
    if (there && !replace && !fs::is_empty(target_, error))
      fail(ErrorKind::invalid_request, "{}: is there already", target_.string());
    if (there) fs::rename(target_, old);
    fs::rename(partial_, target_, error);
    if (error) {
      std::error_code ignored;
      if (there) fs::rename(old, target_, ignored);
      fail(ErrorKind::internal, "{}: cannot be put in place: {}", target_.string(), error.message());
    }
    published_ = true;
    if (there) fs::remove_all(old, error);
  }

 private:
  /// Removes what processes that are gone left of this folder: a killed one cannot do it itself.
  void sweep() const {
    const std::string mark = target_.filename().string() + ".partial-";
    std::error_code error;
    std::vector<fs::path> stale;
    for (const auto& entry : fs::directory_iterator(fs::absolute(target_, error).parent_path(), error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(mark)) continue;
      int process = 0;
      const char* end = name.data() + name.size();
      const auto parsed = std::from_chars(name.data() + mark.size(), end, process);
      if (parsed.ec == std::errc{} && parsed.ptr == end && process > 0 && ::kill(process, 0) != 0 &&
          errno == ESRCH)
        stale.push_back(entry.path());
    }
    for (const fs::path& path : stale) fs::remove_all(path, error);
  }

  fs::path target_, partial_;
  bool published_ = false;
};

fs::path without_slash(fs::path path) {
  while (!path.empty() && !path.has_filename()) path = path.parent_path();
  return path;
}

}  // namespace

void write_export(const Checkpoint& checkpoint, const ExportPlan& plan, const ExportOptions& options,
                  const fs::path& target, bool replace, const std::function<void(size_t, size_t)>& progress) {
  Folder folder(without_slash(target));
  const auto shards = shards_of(plan, options.shard_bytes);
  Json map = Json::object();
  size_t done = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = shards.size() == 1
                                 ? std::string("model.safetensors")
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    std::vector<SafetensorsWriter::Tensor> declared;
    for (const ExportTensor* tensor : shards[i])
      for (const Stored& plane : planes_of(*tensor)) {
        declared.push_back({plane.name, plane.dtype, plane.shape});
        map[plane.name] = file;
      }
    SafetensorsWriter writer(folder.path() / file, std::move(declared), {{"format", "mlx"}},
                             SafetensorsWriter::Order::as_given);
    for (const ExportTensor* tensor : shards[i]) {
      for (const array& plane : convert(plan.source->load(tensor->name), *tensor))
        writer.write({bytes_of(plane), plane.nbytes()});
      done += static_cast<size_t>(tensor->bytes);
      if (progress) progress(done, static_cast<size_t>(plan.bytes));
    }
    writer.finish();
  }
  const Json index = {{"metadata", {{"total_size", plan.bytes}, {"total_parameters", plan.parameters}}},
                      {"weight_map", map}};
  write_text(folder.path() / "model.safetensors.index.json", index.dump(4) + "\n");
  write_text(folder.path() / "config.json", config_text(checkpoint, plan, options));
  if (checkpoint.format == Checkpoint::Format::safetensors) copy_companions(checkpoint.path, folder.path());
  for (const auto& [name, text] : options.files) write_text(folder.path() / name, text);
  folder.publish(replace);
}

}  // namespace mlxcel
