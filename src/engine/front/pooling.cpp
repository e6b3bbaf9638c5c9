#include "engine/front/pooling.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/formats/gguf_file.h"

namespace mlxcel {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr int kMaxInput = 8192;

nlohmann::json read_json(const std::filesystem::path& path) {
  auto json = nlohmann::json::parse(read_file(path, kMaxConfigBytes), nullptr, false);
  if (json.is_discarded()) fail(ErrorKind::bad_checkpoint, "{}: not JSON", path.string());
  return json;
}

// The folder of the pooling module: modules.json knows, 1_Pooling by custom.
std::filesystem::path pooling_folder(const std::filesystem::path& model) {
  const auto modules_path = model / "modules.json";
  if (!std::filesystem::exists(modules_path)) return model / "1_Pooling";
  const auto modules = read_json(modules_path);
  if (!modules.is_array())
    fail(ErrorKind::bad_checkpoint, "{}: expected an array of modules", modules_path.string());
  std::filesystem::path folder = model / "1_Pooling";
  for (const auto& module : modules) {
    const auto word = [&](const char* key) -> std::string {
      return module.is_object() && module.contains(key) && module[key].is_string()
                 ? module[key].get<std::string>()
                 : "";
    };
    const std::string type = word("type");
    if (type.ends_with(".Pooling")) {
      const std::filesystem::path name = word("path");
      if (name.is_absolute() || name.string().find("..") != std::string::npos)
        fail(ErrorKind::bad_checkpoint, "{}: pooling path \"{}\" leaves the model", modules_path.string(),
             name.string());
      folder = model / name;
    } else if (!type.ends_with(".Transformer") && !type.ends_with(".Normalize") &&
               !type.ends_with(".Dense")) {
      fail(ErrorKind::unsupported,
           "{}: module \"{}\" is not supported (Transformer, Pooling, Dense, Normalize are)",
           modules_path.string(), type);
    }
  }
  return folder;
}

/// "<architecture>.pooling_type", as llama.cpp numbers them: 1 mean, 2 first token, 3 last token; 0 is none
/// and 4 a reranker's.
std::optional<Pooling> gguf_pooling(const Checkpoint& checkpoint) {
  if (!checkpoint.gguf) return std::nullopt;
  for (const auto& [key, value] : *checkpoint.gguf) {
    if (!key.ends_with(".pooling_type") || key.ends_with(".classifier.pooling_type")) continue;
    switch (gguf_integer(*checkpoint.gguf, key, 0, 255).value_or(0)) {
      case 1:
        return Pooling::mean;
      case 2:
        return Pooling::cls;
      case 3:
        return Pooling::last;
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<Pooling> checkpoint_pooling(const Checkpoint& checkpoint) {
  if (checkpoint.format == Checkpoint::Format::gguf) return gguf_pooling(checkpoint);
  if (checkpoint.path.empty()) return std::nullopt;
  const auto path = pooling_folder(checkpoint.path) / "config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto config = read_json(path);
  if (!config.is_object()) fail(ErrorKind::bad_checkpoint, "{}: expected an object", path.string());
  std::optional<Pooling> found;
  std::string first;
  for (const auto& [key, value] : config.items()) {
    if (!key.starts_with("pooling_mode_") || !value.is_boolean() || !value.get<bool>()) continue;
    if (found)
      fail(ErrorKind::unsupported, "{}: {} and {} are both set; one vector has one pooling", path.string(),
           first, key);
    first = key;
    if (key == "pooling_mode_cls_token")
      found = Pooling::cls;
    else if (key == "pooling_mode_mean_tokens")
      found = Pooling::mean;
    else if (key == "pooling_mode_max_tokens")
      found = Pooling::max;
    else if (key == "pooling_mode_lasttoken")
      found = Pooling::last;
    else
      fail(ErrorKind::unsupported, "{}: {} is not supported (cls, mean, max and last token are)",
           path.string(), key);
  }
  if (!found) fail(ErrorKind::bad_checkpoint, "{}: no pooling_mode_* is true", path.string());
  return found;
}

}  // namespace

const char* to_string(Pooling pooling) {
  switch (pooling) {
    case Pooling::mean:
      return "mean";
    case Pooling::cls:
      return "cls";
    case Pooling::last:
      return "last";
    case Pooling::max:
      return "max";
  }
  return "";
}

std::optional<Pooling> parse_pooling(std::string_view word) {
  for (Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last, Pooling::max})
    if (word == to_string(pooling)) return pooling;
  if (word == "lasttoken") return Pooling::last;
  return std::nullopt;
}

EmbeddingSetup read_embedding_setup(const Checkpoint& checkpoint, const Tokenizer* tokenizer,
                                    const ModelInfo& info, const std::string& word, int context) {
  EmbeddingSetup setup;
  const auto parse = [](const char* name, std::string_view text) {
    const auto pooling = parse_pooling(text);
    if (!pooling) fail_param(name, "{}: expected mean, cls, last or max, found \"{}\"", name, text);
    return *pooling;
  };
  const char* debug = std::getenv("MLXCEL_EMBEDDING_POOLING");
  if (debug != nullptr && *debug != '\0')
    setup.pooling = parse("MLXCEL_EMBEDDING_POOLING", debug);
  else if (!word.empty())
    setup.pooling = parse("pooling", word);
  else
    setup.pooling = checkpoint_pooling(checkpoint).value_or(Pooling::mean);

  setup.dense = read_dense_layers(checkpoint, info.hidden);
  setup.max_input = kMaxInput;
  if (info.max_positions > 0) setup.max_input = std::min(setup.max_input, info.max_positions);
  if (tokenizer != nullptr && tokenizer->max_length().value_or(0) > 0)
    setup.max_input = std::min(setup.max_input, *tokenizer->max_length());
  if (context > 0) {
    if (info.max_positions > 0 && context > info.max_positions)
      fail_param("ctx-size", "a window of {} tokens is over the model's {}", context, info.max_positions);
    setup.max_input = std::min(setup.max_input, context);
  }
  return setup;
}

std::vector<float> pool(std::span<const float> hidden, int width, Pooling pooling, int dimensions,
                        bool normalize, std::span<const DenseLayer> dense) {
  const auto columns = static_cast<size_t>(width);
  const size_t tokens = hidden.size() / columns;
  // What a dense layer reads is whole.
  const size_t kept =
      dimensions > 0 && dense.empty() ? std::min(columns, static_cast<size_t>(dimensions)) : columns;
  std::vector<double> sums(kept);
  switch (pooling) {
    case Pooling::cls:
    case Pooling::last: {
      const float* row = hidden.data() + (pooling == Pooling::cls ? 0 : (tokens - 1) * columns);
      for (size_t i = 0; i < kept; ++i) sums[i] = static_cast<double>(row[i]);
      break;
    }
    case Pooling::mean:
      for (size_t t = 0; t < tokens; ++t)
        for (size_t i = 0; i < kept; ++i) sums[i] += static_cast<double>(hidden[t * columns + i]);
      for (double& v : sums) v /= static_cast<double>(tokens);
      break;
    case Pooling::max:
      for (size_t i = 0; i < kept; ++i) sums[i] = static_cast<double>(hidden[i]);
      for (size_t t = 1; t < tokens; ++t)
        for (size_t i = 0; i < kept; ++i)
          sums[i] = std::max(sums[i], static_cast<double>(hidden[t * columns + i]));
      break;
  }
  if (!dense.empty()) {
    sums = through(dense, std::move(sums));
    if (dimensions > 0) sums.resize(std::min(sums.size(), static_cast<size_t>(dimensions)));
  }
  double scale = 1.0;
  if (normalize) {
    double squares = 0.0;
    for (double v : sums) squares += v * v;
    scale = 1.0 / std::max(std::sqrt(squares), 1e-12);
  }
  std::vector<float> vector(sums.size());
  for (size_t i = 0; i < vector.size(); ++i) {
    vector[i] = static_cast<float>(sums[i] * scale);
    if (!std::isfinite(vector[i]))
      fail(ErrorKind::internal, "the model's hidden states are not finite: entry {} is {}", i, vector[i]);
  }
  return vector;
}

}  // namespace mlxcel
