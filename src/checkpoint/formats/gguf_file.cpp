#include "checkpoint/formats/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "checkpoint/formats/split_name.h"

namespace mlxcel {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxPairs = 1 << 16, kMaxTensors = 1 << 20, kMaxKey = 1024;
constexpr uint64_t kMaxString = uint64_t{16} << 20, kMaxElements = uint64_t{1} << 24;
constexpr uint32_t kMaxAxes = 4;
constexpr uint64_t kMaxAlignment = 1 << 20;

constexpr GgmlTypeRow kTypes[] = {
    {GgmlType::f32, "F32", 1, 4},       {GgmlType::f16, "F16", 1, 2},
    {GgmlType::q4_0, "Q4_0", 32, 18},   {GgmlType::q4_1, "Q4_1", 32, 20},
    {GgmlType::q5_0, "Q5_0", 32, 22},   {GgmlType::q5_1, "Q5_1", 32, 24},
    {GgmlType::q8_0, "Q8_0", 32, 34},   {GgmlType::q2_k, "Q2_K", 256, 84},
    {GgmlType::q3_k, "Q3_K", 256, 110}, {GgmlType::q4_k, "Q4_K", 256, 144},
    {GgmlType::q5_k, "Q5_K", 256, 176}, {GgmlType::q6_k, "Q6_K", 256, 210},
    {GgmlType::bf16, "BF16", 1, 2},     {GgmlType::mxfp4, "MXFP4", 32, 17},
    {GgmlType::i32, "I32", 1, 4},
};

// What the format knows and we do not hold, for messages.
constexpr struct {
  uint32_t type;
  const char* name;
} kOtherTypes[] = {{4, "Q4_2"},    {5, "Q4_3"},     {9, "Q8_1"},   {15, "Q8_K"},   {16, "IQ2_XXS"},
                   {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},
                   {22, "IQ2_S"},  {23, "IQ4_XS"},  {24, "I8"},    {25, "I16"},    {27, "I64"},
                   {28, "F64"},    {29, "IQ1_M"},   {34, "TQ1_0"}, {35, "TQ2_0"},  {40, "NVFP4"},
                   {41, "Q1_0"}};

/// A cursor that never passes the end.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    static_assert(std::endian::native == std::endian::little);
    return value;
  }

  std::string string(uint64_t limit, const std::string& what) {
    const auto length = number<uint64_t>();
    if (length > limit)
      fail(ErrorKind::bad_checkpoint, "{}: {}: a string of {} bytes, at most {} are read", where_, what,
           length, limit);
    const std::byte* data = take(length);
    return std::string(reinterpret_cast<const char*>(data), static_cast<size_t>(length));
  }

  const std::byte* take(uint64_t count) {
    if (count > left())
      fail(ErrorKind::bad_checkpoint,
           "{}: header runs past the end of the file ({} bytes); download incomplete?", where_,
           bytes_.size());
    const std::byte* data = bytes_.data() + at_;
    at_ += static_cast<size_t>(count);
    return data;
  }

  uint64_t left() const { return bytes_.size() - at_; }
  uint64_t position() const { return at_; }
  const std::string& where() const { return where_; }

 private:
  std::span<const std::byte> bytes_;
  std::string where_;
  size_t at_ = 0;
};

enum ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, list, u64, i64, f64 };

uint64_t least_size(uint32_t type) {
  switch (type) {
    case u8:
    case i8:
    case boolean:
      return 1;
    case u16:
    case i16:
      return 2;
    case u32:
    case i32:
    case f32:
      return 4;
    default:
      return 8;
  }
}

bool read_bool(Reader& reader, const std::string& key) {
  const auto value = reader.number<uint8_t>();
  if (value > 1)
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected a boolean, found {}", reader.where(), key, value);
  return value == 1;
}

template <class To, class From>
std::vector<To> read_numbers(Reader& reader, uint64_t count) {
  std::vector<To> out;
  out.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) out.push_back(static_cast<To>(reader.number<From>()));
  return out;
}

GgufArray read_array(Reader& reader, const std::string& key, uint64_t& elements_left) {
  const auto type = reader.number<uint32_t>();
  const auto count = reader.number<uint64_t>();
  if (type > f64) fail(ErrorKind::bad_checkpoint, "{}: {}: unknown value type {}", reader.where(), key, type);
  if (type == list)
    fail(ErrorKind::bad_checkpoint, "{}: {}: arrays of arrays are not read", reader.where(), key);
  if (count > reader.left() / least_size(type))
    fail(ErrorKind::bad_checkpoint, "{}: {}: an array of {} elements runs past the end of the file",
         reader.where(), key, count);
  if (count > elements_left)
    fail(ErrorKind::bad_checkpoint, "{}: {}: more than {} array elements in the metadata", reader.where(),
         key, kMaxElements);
  elements_left -= count;
  switch (type) {
    case u8:
      return read_numbers<int64_t, uint8_t>(reader, count);
    case i8:
      return read_numbers<int64_t, int8_t>(reader, count);
    case u16:
      return read_numbers<int64_t, uint16_t>(reader, count);
    case i16:
      return read_numbers<int64_t, int16_t>(reader, count);
    case u32:
      return read_numbers<int64_t, uint32_t>(reader, count);
    case i32:
      return read_numbers<int64_t, int32_t>(reader, count);
    case i64:
      return read_numbers<int64_t, int64_t>(reader, count);
    case f32:
      return read_numbers<double, float>(reader, count);
    case f64:
      return read_numbers<double, double>(reader, count);
    case u64: {
      std::vector<int64_t> out;
      for (uint64_t i = 0; i < count; ++i) {
        const auto value = reader.number<uint64_t>();
        if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
          fail(ErrorKind::bad_checkpoint, "{}: {}: {} is beyond 2^63 - 1", reader.where(), key, value);
        out.push_back(static_cast<int64_t>(value));
      }
      return out;
    }
    case boolean: {
      std::vector<bool> out;
      for (uint64_t i = 0; i < count; ++i) out.push_back(read_bool(reader, key));
      return out;
    }
    default: {
      std::vector<std::string> out;
      out.reserve(static_cast<size_t>(count));
      for (uint64_t i = 0; i < count; ++i) out.push_back(reader.string(kMaxString, key));
      return out;
    }
  }
}

GgufValue read_value(Reader& reader, const std::string& key, uint64_t& elements_left) {
  const auto type = reader.number<uint32_t>();
  switch (type) {
    case u8:
      return {int64_t{reader.number<uint8_t>()}};
    case i8:
      return {int64_t{reader.number<int8_t>()}};
    case u16:
      return {int64_t{reader.number<uint16_t>()}};
    case i16:
      return {int64_t{reader.number<int16_t>()}};
    case u32:
      return {int64_t{reader.number<uint32_t>()}};
    case i32:
      return {int64_t{reader.number<int32_t>()}};
    case f32:
      return {double{reader.number<float>()}};
    case boolean:
      return {read_bool(reader, key)};
    case string:
      return {reader.string(kMaxString, key)};
    case list:
      return {read_array(reader, key, elements_left)};
    case u64:
      return {reader.number<uint64_t>()};
    case i64:
      return {reader.number<int64_t>()};
    case f64:
      return {reader.number<double>()};
    default:
      fail(ErrorKind::bad_checkpoint, "{}: {}: unknown value type {}", reader.where(), key, type);
  }
}

GgufTensor read_tensor(Reader& reader, const std::string& name) {
  const std::string where = fmt::format("{}: {}", reader.where(), name);
  const auto axes = reader.number<uint32_t>();
  if (axes < 1 || axes > kMaxAxes)
    fail(ErrorKind::bad_checkpoint, "{}: expected 1 to {} dimensions, found {}", where, kMaxAxes, axes);
  uint64_t extents[kMaxAxes] = {1, 1, 1, 1};
  for (uint32_t i = 0; i < axes; ++i) {
    extents[i] = reader.number<uint64_t>();
    if (extents[i] < 1 || extents[i] > static_cast<uint64_t>(std::numeric_limits<int>::max()))
      fail(ErrorKind::bad_checkpoint, "{}: dimension {} is {}, expected 1 to 2^31 - 1", where, i, extents[i]);
  }
  const auto type = reader.number<uint32_t>();
  GgufTensor tensor;
  tensor.type = find_ggml_type(type);
  if (!tensor.type)
    fail(ErrorKind::unsupported, "{}: tensors of type {} are not supported", where, ggml_type_name(type));
  if (extents[0] % static_cast<uint64_t>(tensor.type->elements) != 0)
    fail(ErrorKind::bad_checkpoint, "{}: rows of {} elements, {} comes in blocks of {}", where, extents[0],
         tensor.type->name, tensor.type->elements);
  uint64_t blocks = extents[0] / static_cast<uint64_t>(tensor.type->elements);
  for (uint32_t i = 1; i < axes; ++i) {
    if (blocks > (uint64_t{1} << 55) / extents[i])
      fail(ErrorKind::bad_checkpoint, "{}: dimensions overflow", where);
    blocks *= extents[i];
  }
  tensor.bytes = blocks * static_cast<uint64_t>(tensor.type->bytes);
  for (uint32_t i = axes; i-- > 0;) tensor.shape.push_back(static_cast<int>(extents[i]));
  tensor.offset = reader.number<uint64_t>();
  return tensor;
}

void place_tensors(std::map<std::string, GgufTensor>& tensors, const File& file, uint64_t header,
                   uint64_t alignment) {
  const std::string path = file.path().string();
  const uint64_t data = (header + alignment - 1) / alignment * alignment;
  std::vector<std::pair<const std::string, GgufTensor>*> order;
  for (auto& item : tensors) {
    auto& [name, tensor] = item;
    if (tensor.offset % alignment != 0)
      fail(ErrorKind::bad_checkpoint, "{}: {}: offset {} is not a multiple of the alignment {}", path, name,
           tensor.offset, alignment);
    if (data > file.size() || tensor.offset > file.size() - data ||
        tensor.bytes > file.size() - data - tensor.offset)
      fail(ErrorKind::bad_checkpoint,
           "{}: {}: {} bytes at offset {} lie beyond the file's {}; download incomplete?", path, name,
           tensor.bytes, tensor.offset, file.size());
    tensor.offset += data;
    order.push_back(&item);
  }
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->second.offset < b->second.offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->second.offset < order[i - 1]->second.offset + order[i - 1]->second.bytes)
      fail(ErrorKind::bad_checkpoint, "{}: {} and {} overlap", path, order[i - 1]->first, order[i]->first);
}

struct Part {
  GgufMetadata metadata;
  std::map<std::string, GgufTensor> tensors;
};

Part read_part(const std::shared_ptr<const File>& file) {
  const std::string path = file->path().string();
  if (file->size() < 24)
    fail(ErrorKind::bad_checkpoint, "{}: {} bytes are too few for a GGUF file; download incomplete?", path,
         file->size());
  const auto range = file->view(0, file->size());
  Reader reader(range->bytes(), path);
  if (std::memcmp(reader.take(4), "GGUF", 4) != 0)
    fail(ErrorKind::bad_checkpoint, "{}: does not begin with GGUF", path);
  const auto version = reader.number<uint32_t>();
  if (version == 0x02000000 || version == 0x03000000)
    fail(ErrorKind::unsupported, "{}: big-endian GGUF files are not supported", path);
  if (version != 2 && version != 3)
    fail(ErrorKind::unsupported, "{}: GGUF version {}, expected 2 or 3", path, version);
  const auto tensor_count = reader.number<uint64_t>();
  const auto pair_count = reader.number<uint64_t>();
  if (tensor_count > kMaxTensors || tensor_count > reader.left() / 24)
    fail(ErrorKind::bad_checkpoint, "{}: {} tensors cannot stand in {} bytes", path, tensor_count,
         file->size());
  if (pair_count > kMaxPairs || pair_count > reader.left() / 12)
    fail(ErrorKind::bad_checkpoint, "{}: {} metadata pairs cannot stand in {} bytes", path, pair_count,
         file->size());

  Part part;
  uint64_t elements_left = kMaxElements;
  for (uint64_t i = 0; i < pair_count; ++i) {
    const std::string key = reader.string(kMaxKey, "a metadata key");
    if (!part.metadata.emplace(key, read_value(reader, key, elements_left)).second)
      fail(ErrorKind::bad_checkpoint, "{}: {} is given twice", path, key);
  }
  for (uint64_t i = 0; i < tensor_count; ++i) {
    const std::string name = reader.string(kMaxKey, "a tensor name");
    GgufTensor tensor = read_tensor(reader, name);
    tensor.file = file;
    if (!part.tensors.emplace(name, std::move(tensor)).second)
      fail(ErrorKind::bad_checkpoint, "{}: {} is declared twice", path, name);
  }
  const auto alignment = gguf_integer(part.metadata, "general.alignment", 1, kMaxAlignment).value_or(32);
  if (!std::has_single_bit(static_cast<uint64_t>(alignment)))
    fail(ErrorKind::bad_checkpoint, "{}: general.alignment: expected a power of two, found {}", path,
         alignment);
  place_tensors(part.tensors, *file, reader.position(), static_cast<uint64_t>(alignment));
  return part;
}

void check_split_keys(const GgufMetadata& metadata, const std::string& path, int part, int count) {
  const auto declared = gguf_integer(metadata, "split.count", 0, 1 << 20);
  const auto number = gguf_integer(metadata, "split.no", 0, 1 << 20);
  if (declared && *declared != count)
    fail(ErrorKind::bad_checkpoint, "{}: split.count is {}, the file name says {}", path, *declared, count);
  if (number && *number != part - 1)
    fail(ErrorKind::bad_checkpoint, "{}: split.no is {}, the file name says {}", path, *number, part - 1);
}

GgufContents read_split(const fs::path& path, const SplitName& split) {
  const fs::path folder = path.parent_path();
  std::string missing;
  for (int part = 1; part <= split.count; ++part) {
    std::error_code code;
    if (!fs::exists(folder / split.name(part), code))
      missing += (missing.empty() ? "" : ", ") + split.name(part);
    if (missing.size() > 1000) break;
  }
  if (!missing.empty())
    fail(ErrorKind::bad_checkpoint, "{}: missing from {}; download incomplete?", missing,
         folder.empty() ? std::string(".") : folder.string());
  GgufContents contents;
  contents.first = folder / split.name(1);
  for (int number = 1; number <= split.count; ++number) {
    const auto file = File::open(folder / split.name(number));
    Part part = read_part(file);
    check_split_keys(part.metadata, file->path().string(), number, split.count);
    contents.file_bytes += file->size();
    if (number == 1) contents.metadata = std::move(part.metadata);
    for (auto& [name, tensor] : part.tensors) {
      const auto [place, fresh] = contents.tensors.emplace(name, std::move(tensor));
      if (!fresh)
        fail(ErrorKind::bad_checkpoint, "{} is in two files: {} and {}", name,
             place->second.file->path().string(), file->path().string());
    }
  }
  const auto total = gguf_integer(contents.metadata, "split.tensors.count", 0, kMaxTensors);
  if (total && *total != static_cast<int64_t>(contents.tensors.size()))
    fail(ErrorKind::bad_checkpoint, "{}: split.tensors.count is {}, the parts hold {}",
         contents.first.string(), *total, contents.tensors.size());
  return contents;
}

[[noreturn]] void fail_type(std::string_view key, const char* expected) {
  fail(ErrorKind::bad_checkpoint, "GGUF key {}: expected {}", key, expected);
}

}  // namespace

const GgmlTypeRow* find_ggml_type(uint32_t type) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const GgmlTypeRow& row) {
    return static_cast<uint32_t>(row.type) == type;
  });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string ggml_type_name(uint32_t type) {
  if (const GgmlTypeRow* row = find_ggml_type(type)) return row->name;
  for (const auto& other : kOtherTypes)
    if (other.type == type) return other.name;
  return fmt::format("number {}", type);
}

GgufContents read_gguf(const fs::path& path) {
  if (const auto split = parse_split_name(path.filename().string(), ".gguf")) return read_split(path, *split);
  const auto file = File::open(path);
  Part part = read_part(file);
  const auto count = gguf_integer(part.metadata, "split.count", 0, 1 << 20).value_or(0);
  if (count > 1)
    fail(ErrorKind::bad_checkpoint,
         "{}: one of {} parts, but its name does not say which (-00001-of-{:05}.gguf)", path.string(), count,
         count);
  return {std::move(part.metadata), std::move(part.tensors), static_cast<size_t>(file->size()), path};
}

std::optional<int64_t> gguf_integer(const GgufMetadata& metadata, std::string_view key, int64_t low,
                                    int64_t high) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  int64_t value = 0;
  if (const auto* number = std::get_if<int64_t>(&found->second.value)) {
    value = *number;
  } else if (const auto* large = std::get_if<uint64_t>(&found->second.value)) {
    if (*large > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail_type(key, "a smaller integer");
    value = static_cast<int64_t>(*large);
  } else {
    fail_type(key, "an integer");
  }
  if (value < low || value > high)
    fail(ErrorKind::bad_checkpoint, "GGUF key {}: expected {} to {}, found {}", key, low, high, value);
  return value;
}

std::optional<double> gguf_number(const GgufMetadata& metadata, std::string_view key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  double value = 0;
  if (const auto* real = std::get_if<double>(&found->second.value)) {
    value = *real;
  } else if (const auto* number = std::get_if<int64_t>(&found->second.value)) {
    value = static_cast<double>(*number);
  } else if (const auto* large = std::get_if<uint64_t>(&found->second.value)) {
    value = static_cast<double>(*large);
  } else {
    fail_type(key, "a number");
  }
  if (!std::isfinite(value)) fail_type(key, "a finite number");
  return value;
}

std::optional<bool> gguf_bool(const GgufMetadata& metadata, std::string_view key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  const auto* value = std::get_if<bool>(&found->second.value);
  if (!value) fail_type(key, "a boolean");
  return *value;
}

std::optional<std::string> gguf_string(const GgufMetadata& metadata, std::string_view key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  const auto* value = std::get_if<std::string>(&found->second.value);
  if (!value) fail_type(key, "a string");
  return *value;
}

}  // namespace mlxcel
