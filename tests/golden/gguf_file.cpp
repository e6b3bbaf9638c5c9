#include "gguf_file.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "checkpoint/formats/test_files.h"
#include "models/synthetic.h"

namespace mlxcel::golden {

namespace {

using Json = nlohmann::ordered_json;
using testing_files::Gguf;
using testing_files::raw;

const std::filesystem::path kFolder = MLXCEL_SOURCE_DIR "/tests/golden/gguf";

Json read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

/// The format's number of a type, and one value's bytes.
std::pair<uint32_t, std::string> coded(const std::string& type, const Json& value) {
  if (type == "uint8") return {0, raw(value.get<uint8_t>())};
  if (type == "int8") return {1, raw(value.get<int8_t>())};
  if (type == "uint16") return {2, raw(value.get<uint16_t>())};
  if (type == "int16") return {3, raw(value.get<int16_t>())};
  if (type == "uint32") return {4, raw(value.get<uint32_t>())};
  if (type == "int32") return {5, raw(value.get<int32_t>())};
  if (type == "float32")  // infinities are spelled out
    return {6, raw(value.is_string() ? std::stof(value.get<std::string>()) : value.get<float>())};
  if (type == "bool") return {7, raw(static_cast<uint8_t>(value.get<bool>()))};
  if (type == "string") return {8, Gguf::text(value.get<std::string>())};
  if (type == "uint64") return {10, raw(value.get<uint64_t>())};
  if (type == "int64") return {11, raw(value.get<int64_t>())};
  if (type == "float64") return {12, raw(value.get<double>())};
  throw std::runtime_error("a record's metadata has no type " + type);
}

void add_metadata(Gguf& file, const Json& metadata) {
  for (const auto& [key, entry] : metadata.items()) {
    if (entry.at(0) != "array") {
      const auto [type, bytes] = coded(entry.at(0), entry.at(1));
      file.pair(key, type, bytes);
      continue;
    }
    std::string bytes = raw<uint64_t>(entry.at(2).size());
    for (const Json& value : entry.at(2)) bytes += coded(entry.at(1), value).second;
    file.pair(key, 9,
              raw(coded(entry.at(1), entry.at(2).empty() ? Json(0) : entry.at(2).at(0)).first) + bytes);
  }
}

class Published {
 public:
  explicit Published(const Golden& golden) : source_(source_of(golden.tensors, golden.formats)) {}

  /// A published tensor's values, in its own order.
  const std::vector<float>& values(const std::string& name) {
    auto found = known_.find(name);
    if (found == known_.end()) {
      const Weight weight = source_->load(name);
      const float* data = weight.data.data<float>();
      found = known_.emplace(name, std::vector<float>(data, data + weight.data.size())).first;
    }
    return found->second;
  }

  /// One piece of a tensor: a whole published one, a walk through one (times a number), or zeros.
  void append(const Json& piece, std::vector<float>& to) {
    if (piece.is_string()) {
      const auto& whole = values(piece.get<std::string>());
      to.insert(to.end(), whole.begin(), whole.end());
      return;
    }
    if (piece.contains("zeros")) return to.resize(to.size() + piece.at("zeros").get<size_t>(), 0.0f);
    const size_t before = to.size();
    walk(values(piece.at("of")), piece, piece.at("at").get<int64_t>(), 0, to);
    const float times = piece.value("times", 1.0f);
    for (size_t i = before; i < to.size(); ++i) to[i] *= times;
  }

 private:
  static void walk(const std::vector<float>& from, const Json& piece, int64_t at, size_t axis,
                   std::vector<float>& to) {
    if (axis == piece.at("sizes").size()) return to.push_back(from.at(static_cast<size_t>(at)));
    const auto size = piece.at("sizes").at(axis).get<int64_t>(),
               stride = piece.at("strides").at(axis).get<int64_t>();
    for (int64_t i = 0; i < size; ++i) walk(from, piece, at + i * stride, axis + 1, to);
  }

  std::shared_ptr<Source> source_;
  std::map<std::string, std::vector<float>> known_;
};

float changed(const std::string& change, float x) {
  if (change == "plus_one") return x + 1.0f;
  if (change == "minus_exp") return -std::exp(x);
  if (change == "negative") return -x;
  throw std::runtime_error("a record's tensor has no change " + change);
}

std::vector<float> values_of(const Json& entry, Published& published) {
  if (entry.contains("values")) return entry.at("values").get<std::vector<float>>();
  std::vector<float> values;
  for (const Json& piece : entry.at("pieces")) published.append(piece, values);
  if (entry.contains("change"))
    for (float& x : values) x = changed(entry.at("change"), x);
  return values;
}

}  // namespace

std::filesystem::path gguf_record(const std::string& name) { return kFolder / (name + ".json"); }

GgufGolden gguf_golden(const Golden& golden) {
  const Json record = read(gguf_record(golden.name));
  Gguf file;
  add_metadata(file, record.at("metadata"));
  Published published(golden);
  for (const auto& [name, entry] : record.at("tensors").items()) {
    const auto values = values_of(entry, published);
    const auto axes = entry.at("axes").get<std::vector<uint64_t>>();
    uint64_t elements = 1;
    for (const uint64_t axis : axes) elements *= axis;
    if (elements != values.size()) throw std::runtime_error(golden.name + ": " + name + " has another size");
    std::string data(values.size() * sizeof(float), '\0');
    std::memcpy(data.data(), values.data(), data.size());
    file.tensor(name, 0, axes, data);
  }
  return {file.bytes(), record.at("metadata").at("general.architecture").at(1)};
}

GgufReasons gguf_reasons() {
  const Json json = read(kFolder / "reasons.json");
  GgufReasons reasons;
  for (const auto& [name, reason] : json.at("names").items()) reasons.names[name] = reason;
  for (const auto& [type, reason] : json.at("model_types").items()) reasons.types[type] = reason;
  return reasons;
}

}  // namespace mlxcel::golden
