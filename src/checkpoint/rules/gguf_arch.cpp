// The table of tables, and what every architecture needs: common keys, special ids, names to tensors.
#include "checkpoint/rules/gguf_arch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/formats/gguf_blocks.h"
#include "checkpoint/rules/gguf_tables.h"
#include "checkpoint/rules/pattern.h"
#include "tensor/external.h"

namespace mlxcel {

namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr int64_t kMaxGgufLayers = 4096;

/// A key that is one integer, or a list of equal ones (some converters write one value per layer).
std::optional<int64_t> uniform_integer(const GgufMetadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  const auto* list = std::get_if<GgufArray>(&found->second.value);
  if (!list) return gguf_integer(metadata, key, 0, kMaxInt);
  const auto* numbers = std::get_if<std::vector<int64_t>>(list);
  if (!numbers || numbers->empty()) fail(ErrorKind::bad_checkpoint, "GGUF key {}: expected integers", key);
  for (const int64_t number : *numbers)
    if (number != numbers->front())
      fail(ErrorKind::unsupported, "GGUF key {}: differs between layers, which is not supported", key);
  if (numbers->front() < 0 || numbers->front() > kMaxInt)
    fail(ErrorKind::bad_checkpoint, "GGUF key {}: expected 0 to {}, found {}", key, kMaxInt,
         numbers->front());
  return numbers->front();
}

/// A float32 of the file as the shortest decimal that reads back to it: 1e-05, not 9.99999974e-06.
double as_written(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  return std::stod(fmt::format("{}", narrow));
}

void read_keys(const GgufFacts& facts, std::span<const GgufKey> keys, ConfigDraft& config) {
  for (const GgufKey& key : keys) {
    const std::string name = facts.prefix + key.gguf;
    if (key.kind == GgufKey::Kind::integer) {
      if (const auto value = uniform_integer(facts.file.metadata, name)) config.set(key.hf, *value);
    } else if (const auto value = gguf_number(facts.file.metadata, name)) {
      config.set(key.hf, as_written(*value));
    }
    if (key.required && !config.contains(key.hf))
      fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}: missing", facts.file.first.string(), name);
  }
}

void read_special_ids(const GgufMetadata& metadata, ConfigDraft& config) {
  constexpr std::pair<const char*, const char*> ids[] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                                         {"tokenizer.ggml.eos_token_id", "eos_token_id"},
                                                         {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
  for (const auto& [gguf, hf] : ids)
    if (const auto id = gguf_integer(metadata, gguf, 0, kMaxInt)) config.set(hf, *id);
}

/// Undoes a change on dense values; f32 out.
Weight changed(Weight weight, const std::string& where, float (*change)(float)) {
  if (weight.quantized() || weight.data.dtype() != mx::float32)
    fail(ErrorKind::unsupported, "{}: expected F32 values", where);
  array out = allocated(weight.shape, mx::float32);
  const float* from = std::as_const(weight.data).data<float>();
  float* to = out.data<float>();
  for (size_t i = 0; i < out.size(); ++i) to[i] = change(from[i]);
  weight.data = out;
  return weight;
}

Shape published_shape(const Shape& shape, GgufChange change) {
  if (change == GgufChange::convolution && shape.size() == 2) return {shape[0], 1, shape[1]};
  if (change == GgufChange::join && shape.size() == 3) return {shape[0] * shape[1], shape[2]};
  // Mamba 1's logarithms are a matrix, Mamba 2's a column.
  const bool column = shape.size() == 2 && shape[1] == 1;
  if (change != GgufChange::flatten && change != GgufChange::row &&
      !(change == GgufChange::log_negated && column))
    return shape;
  int64_t elements = 1;  // bounded by the file's own size
  for (const int extent : shape) elements *= extent;
  if (change == GgufChange::row) return {1, static_cast<int>(elements)};
  return {static_cast<int>(elements)};
}

/// The same memory under the published shape.
Weight reshaped(Weight weight, GgufChange change) {
  weight.shape = published_shape(weight.shape, change);
  auto owner = std::make_shared<array>(weight.data);
  std::byte* data = mutable_bytes(*owner);
  const mx::Dtype dtype = owner->dtype();
  weight.data = external(data, weight.shape, dtype, std::move(owner));
  return weight;
}

class GgufSource final : public Source {
 public:
  struct Entry {
    const GgufTensor* tensor;
    GgufChange change;
    std::string gguf_name;
  };

  GgufSource(const GgufContents& file, const GgufArch& arch, int heads, int kv_heads, int head_dim)
      : tensors_(file.tensors),
        heads_(heads),
        kv_heads_(kv_heads),
        head_dim_(head_dim),
        path_(file.first.string()) {
    for (const auto& [name, tensor] : tensors_) {
      bool named = false;
      for (const GgufName& row : arch.names) {
        const auto captures = match(row.gguf, name);
        if (!captures) continue;
        named = true;
        if (*row.hf == '\0') break;
        const std::string target = fill(row.hf, *captures);
        if (!entries_.emplace(target, Entry{&tensor, row.change, name}).second)
          fail(ErrorKind::bad_checkpoint, "{}: two tensors become {}", path_, target);
        if (row.change == GgufChange::flatten || row.change == GgufChange::convolution ||
            row.change == GgufChange::row || row.change == GgufChange::join)
          check_dense(name, tensor);
        if (row.change == GgufChange::unpermute_q) check_heads(name, tensor, heads_);
        if (row.change == GgufChange::unpermute_k) check_heads(name, tensor, kv_heads_of(tensor));
        break;
      }
      if (!named)
        fail(ErrorKind::bad_checkpoint, "{}: {} is not a tensor of a {} model", path_, name, arch.name);
    }
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& [name, entry] : entries_) out.push_back(name);
    for (const auto& [name, value] : values_) out.push_back(name);
    std::sort(out.begin(), out.end());
    return out;
  }

  /// Numbers of the metadata that are tensors where the model is published.
  void add_listed(const GgufFacts& facts, std::span<const GgufListed> rows, int64_t layers) {
    for (const GgufListed& row : rows) {
      const auto numbers = facts.numbers(row.key, layers);
      for (size_t i = 0; i < numbers.size(); ++i)
        values_[fill(row.hf, {{'#', std::to_string(i)}})] = static_cast<float>(numbers[i]);
    }
  }

  std::optional<WeightInfo> find(const std::string& name) const override {
    if (values_.contains(name))
      return WeightInfo{
          .shape = {1}, .dtype = mx::float32, .format = {}, .stored_as = "F32", .bytes = sizeof(float)};
    const auto found = entries_.find(name);
    if (found == entries_.end()) return std::nullopt;
    WeightInfo info = describe_gguf_tensor(*found->second.tensor);
    info.shape = published_shape(info.shape, found->second.change);
    return info;
  }

  Weight load(const std::string& name) override {
    if (const auto number = values_.find(name); number != values_.end())
      return {.name = name,
              .shape = {1},
              .data = array({number->second}, {1}),
              .scales = {},
              .biases = {},
              .format = {}};
    const auto found = entries_.find(name);
    if (found == entries_.end()) fail(ErrorKind::not_found, "{}: not in {}", name, path_);
    const auto& [tensor, change, gguf_name] = found->second;
    const std::string where = path_ + ": " + gguf_name;
    switch (change) {
      case GgufChange::none:
        return load_gguf_tensor(*tensor, name);
      case GgufChange::unpermute_q:
        return load_gguf_tensor(*tensor, name, halves(*tensor, heads_));
      case GgufChange::unpermute_k:
        return load_gguf_tensor(*tensor, name, halves(*tensor, kv_heads_of(*tensor)));
      case GgufChange::minus_one:
        return changed(load_gguf_tensor(*tensor, name), where, [](float x) { return x - 1.0f; });
      case GgufChange::minus_fifth:
        return changed(load_gguf_tensor(*tensor, name), where, [](float x) { return x - 0.2f; });
      case GgufChange::minus_fifth_power:
        return changed(load_gguf_tensor(*tensor, name), where, [](float x) { return x - 0.08944272f; });
      case GgufChange::log_negated:
        return reshaped(changed(load_gguf_tensor(*tensor, name), where, [](float x) { return std::log(-x); }),
                        change);
      case GgufChange::flatten:
      case GgufChange::row:
      case GgufChange::join:
      case GgufChange::convolution:
        return reshaped(load_gguf_tensor(*tensor, name), change);
    }
    fail(ErrorKind::internal, "{}: no such change", where);
  }

 private:
  /// Where layers differ in their number of key heads, heads are told by their width.
  int kv_heads_of(const GgufTensor& tensor) const {
    return kv_heads_ > 0 || head_dim_ < 1 ? kv_heads_ : tensor.shape[0] / head_dim_;
  }

  void check_heads(const std::string& name, const GgufTensor& tensor, int heads) const {
    const int rows = tensor.shape[0];
    if (heads < 1 || rows % heads != 0 || rows / heads % 2 != 0 || tensor.shape.size() > 2)
      fail(ErrorKind::bad_checkpoint, "{}: {}: {} rows do not make {} heads of even width", path_, name, rows,
           heads);
  }

  void check_dense(const std::string& name, const GgufTensor& tensor) const {
    size_t elements = 1;
    for (const int extent : tensor.shape) elements *= static_cast<size_t>(extent);
    if (tensor.type->elements != 1 || elements > static_cast<size_t>(kMaxInt))
      fail(ErrorKind::bad_checkpoint, "{}: {}: expected a small dense tensor, found {} {}", path_, name,
           tensor.type->name, to_string(tensor.shape));
  }

  /// The file holds row pair (2i, 2i + 1) of a head where the published matrix holds (i, i + half). A bias is
  /// one row of the file, so its elements are what moves.
  static RowOrder halves(const GgufTensor& tensor, int heads) {
    const int64_t width = tensor.shape[0] / heads, half = width / 2;
    return [width, half](int64_t row) {
      const int64_t head = row / width, within = row % width;
      return head * width + within % half * 2 + within / half;
    };
  }

  std::map<std::string, GgufTensor> tensors_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, float> values_;
  int heads_, kv_heads_, head_dim_;
  std::string path_;
};

}  // namespace

bool GgufFacts::has_tensor(std::string_view name) const { return file.tensors.contains(std::string(name)); }

std::optional<int64_t> GgufFacts::rows(std::string_view name) const {
  const auto found = file.tensors.find(std::string(name));
  if (found == file.tensors.end() || found->second.shape.empty()) return std::nullopt;
  return found->second.shape[0];
}

std::optional<int64_t> GgufFacts::integer(std::string_view key, int64_t low, int64_t high) const {
  return gguf_integer(file.metadata, prefix + std::string(key), low, high);
}

std::optional<double> GgufFacts::number(std::string_view key) const {
  const auto value = gguf_number(file.metadata, prefix + std::string(key));
  return value ? std::optional(as_written(*value)) : std::nullopt;
}

std::optional<bool> GgufFacts::flag(std::string_view key) const {
  return gguf_bool(file.metadata, prefix + std::string(key));
}

std::vector<int64_t> GgufFacts::per_layer(std::string_view key, int64_t layers, int64_t high,
                                          int64_t missing) const {
  const std::string name = prefix + std::string(key);
  if (layers < 1 || layers > kMaxGgufLayers)
    fail(ErrorKind::bad_checkpoint, "{}: {} layers: expected 1 to {}", file.first.string(), layers,
         kMaxGgufLayers);
  const auto found = file.metadata.find(name);
  const auto* list = found == file.metadata.end() ? nullptr : std::get_if<GgufArray>(&found->second.value);
  if (!list)
    return std::vector<int64_t>(static_cast<size_t>(layers), integer(key, 0, high).value_or(missing));
  const auto* numbers = std::get_if<std::vector<int64_t>>(list);
  if (!numbers || static_cast<int64_t>(numbers->size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}: expected {} integers", file.first.string(), name,
         layers);
  for (const int64_t number : *numbers)
    if (number < 0 || number > high)
      fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}: expected 0 to {}, found {}", file.first.string(),
           name, high, number);
  return *numbers;
}

std::vector<bool> GgufFacts::flags(std::string_view key, int64_t layers) const {
  const std::string name = prefix + std::string(key);
  const auto found = file.metadata.find(name);
  if (found == file.metadata.end()) return {};
  const auto* list = std::get_if<GgufArray>(&found->second.value);
  const auto* values = list ? std::get_if<std::vector<bool>>(list) : nullptr;
  if (!values || static_cast<int64_t>(values->size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}: expected a flag for each of {} layers",
         file.first.string(), name, layers);
  return *values;
}

std::vector<double> GgufFacts::numbers(std::string_view key, int64_t layers) const {
  const std::string name = prefix + std::string(key);
  const auto found = file.metadata.find(name);
  if (found == file.metadata.end()) return {};
  const auto* list = std::get_if<GgufArray>(&found->second.value);
  const auto* values = list ? std::get_if<std::vector<double>>(list) : nullptr;
  if (!values || static_cast<int64_t>(values->size()) != layers)
    fail(ErrorKind::bad_checkpoint, "{}: GGUF key {}: expected a number for each of {} layers",
         file.first.string(), name, layers);
  std::vector<double> written;
  for (const double value : *values) written.push_back(as_written(value));
  return written;
}

std::span<const GgufArch* const> gguf_archs() {
  static const std::vector<const GgufArch*> table = [] {
    std::vector<const GgufArch*> all{&gguf_qwen2(), &gguf_qwen3(), &gguf_qwen3moe(), &gguf_qwen3vlmoe(),
                                     &gguf_gpt2(),  &gguf_bert(),  &gguf_mamba2(),   &gguf_rwkv7()};
    for (const auto family :
         {gguf_llamas, gguf_gemmas, gguf_gemma3s, gguf_llama_kin, gguf_layer_norm_kin, gguf_phis_and_glms,
          gguf_experts, gguf_latent, gguf_pooled, gguf_scans, gguf_lfm2s, gguf_deltas, gguf_late_gemmas,
          gguf_encoders, gguf_experts_otherwise, gguf_experts_apart, gguf_decoders_apart,
          gguf_windowed_experts})
      for (const GgufArch& arch : family()) all.push_back(&arch);
    return all;
  }();
  return table;
}

const GgufArch* find_gguf_arch(std::string_view name) {
  const auto table = gguf_archs();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const GgufArch* arch) { return arch->name == name; });
  return found == table.end() ? nullptr : *found;
}

ConfigDraft gguf_config(const GgufContents& file) {
  const std::string path = file.first.string();
  const auto name = gguf_string(file.metadata, "general.architecture");
  if (!name) fail(ErrorKind::bad_checkpoint, "{}: GGUF key general.architecture: missing", path);
  if (*name == "clip")
    fail(ErrorKind::unsupported, "{}: an mmproj file is not a model; images need the safetensors folder",
         path);
  const GgufArch* arch = find_gguf_arch(*name);
  if (!arch)
    fail(ErrorKind::unsupported, "{}: general.architecture \"{}\": {}", path, *name,
         known_to_gguf(*name) ? "GGUF files of this family are not mapped yet; use a safetensors folder"
                              : "unknown architecture");
  const GgufFacts facts{file, *name + "."};
  ConfigDraft config;
  config.set("model_type", arch->model_type);
  config.set("architectures", std::vector<std::string>{arch->hf_class});
  facts.integer("block_count", 0, kMaxGgufLayers);  // what tables loop over
  read_keys(facts, arch->keys, config);
  read_special_ids(file.metadata, config);
  const auto embedding = file.tensors.find("token_embd.weight");
  if (embedding == file.tensors.end() || embedding->second.shape.size() != 2)
    fail(ErrorKind::bad_checkpoint, "{}: token_embd.weight: expected a matrix, found {}", path,
         embedding == file.tensors.end() ? "nothing" : to_string(embedding->second.shape));
  config.set("vocab_size", embedding->second.shape[0]);
  config.set("tie_word_embeddings", !facts.has_tensor("output.weight"));
  if (arch->complete) arch->complete(facts, config);
  return config;
}

std::shared_ptr<Source> gguf_source(const GgufContents& file, const ConfigDraft& config) {
  const GgufArch* arch = find_gguf_arch(gguf_string(file.metadata, "general.architecture").value_or(""));
  if (!arch) fail(ErrorKind::internal, "{}: no table for its architecture", file.first.string());
  const auto heads_of = [&](const char* key, int fallback) {
    return config.contains(key) ? static_cast<int>(config.integer(key)) : fallback;
  };
  const int heads = heads_of("num_attention_heads", 0);
  const auto source = std::make_shared<GgufSource>(
      file, *arch, heads, config.contains("block_configs") ? 0 : heads_of("num_key_value_heads", heads),
      heads_of("head_dim", 0));
  source->add_listed(GgufFacts{file, ""}, arch->listed, heads_of("num_hidden_layers", 0));
  return source;
}

}  // namespace mlxcel
