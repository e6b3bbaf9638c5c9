#include "checkpoint/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "tensor/external.h"

namespace mlxcel {

namespace {

using json = nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr int kMaxDepth = 4;                  // tensors.name.shape[]
constexpr size_t kMaxName = 1024;
constexpr size_t kMaxAxes = 8;

struct DtypeRow {
  const char* name;
  uint64_t size;
  mx::Dtype held;
  bool supported;
};

const DtypeRow* find_dtype(const std::string& name) {
  static const std::array<DtypeRow, 16> rows{{{"F64", 8, mx::float32, true},
                                              {"F32", 4, mx::float32, true},
                                              {"F16", 2, mx::float16, true},
                                              {"BF16", 2, mx::bfloat16, true},
                                              {"F8_E4M3", 1, mx::uint8, false},
                                              {"F8_E5M2", 1, mx::uint8, false},
                                              {"F8_E8M0", 1, mx::uint8, false},
                                              {"I8", 1, mx::int8, true},
                                              {"U8", 1, mx::uint8, true},
                                              {"I16", 2, mx::int16, true},
                                              {"U16", 2, mx::uint16, true},
                                              {"I32", 4, mx::int32, true},
                                              {"U32", 4, mx::uint32, true},
                                              {"I64", 8, mx::int64, true},
                                              {"U64", 8, mx::uint64, true},
                                              {"BOOL", 1, mx::bool_, true}}};
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const DtypeRow& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

const DtypeRow& dtype_row(const std::string& where, const std::string& dtype) {
  const DtypeRow* row = find_dtype(dtype);
  if (!row) fail(ErrorKind::bad_checkpoint, "{}: unknown dtype {}", where, dtype);
  return *row;
}

/// Parses the header; nesting and duplicate names are caught while parsing.
json parse_header(const std::string& text, const std::string& file) {
  std::set<std::string> seen;
  const json::parser_callback_t check = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth)
      fail(ErrorKind::bad_checkpoint, "{}: header nested more than {} deep", file, kMaxDepth);
    if (event == json::parse_event_t::key && depth == 1) {
      const auto& name = value.get_ref<const std::string&>();
      if (!seen.insert(name).second) fail(ErrorKind::bad_checkpoint, "{}: {} is declared twice", file, name);
    }
    return true;
  };
  try {
    json header = json::parse(text, check);
    if (!header.is_object()) fail(ErrorKind::bad_checkpoint, "{}: header is not a JSON object", file);
    return header;
  } catch (const json::exception& error) {
    fail(ErrorKind::bad_checkpoint, "{}: header is not valid JSON: {}", file, error.what());
  }
}

uint64_t unsigned_field(const json& value, const std::string& where, const char* field) {
  if (!value.is_number_unsigned())
    fail(ErrorKind::bad_checkpoint, "{}: {}: expected a non-negative integer, found {}", where, field,
         value.dump());
  return value.get<uint64_t>();
}

StoredTensor read_entry(const json& entry, const std::string& where, uint64_t data_bytes) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets"))
    fail(ErrorKind::bad_checkpoint, "{}: expected dtype, shape and data_offsets", where);
  const json &dtype = entry["dtype"], &shape = entry["shape"], &range = entry["data_offsets"];
  if (!dtype.is_string()) fail(ErrorKind::bad_checkpoint, "{}: dtype is not a string", where);
  if (!shape.is_array() || shape.size() > kMaxAxes)
    fail(ErrorKind::bad_checkpoint, "{}: shape: expected a list of at most {} extents", where, kMaxAxes);
  if (!range.is_array() || range.size() != 2)
    fail(ErrorKind::bad_checkpoint, "{}: data_offsets: expected [begin, end]", where);

  StoredTensor tensor;
  tensor.dtype = dtype.get<std::string>();
  uint64_t elements = 1;
  bool empty = false;
  for (const json& extent : shape) {
    const uint64_t value = unsigned_field(extent, where, "shape");
    if (value > static_cast<uint64_t>(std::numeric_limits<int>::max()))
      fail(ErrorKind::bad_checkpoint, "{}: shape: extent {} is beyond 2^31 - 1", where, value);
    tensor.shape.push_back(static_cast<int>(value));
    empty = empty || value == 0;
    if (value > 0 && elements > std::numeric_limits<uint64_t>::max() / 16 / value)
      fail(ErrorKind::bad_checkpoint, "{}: shape {} overflows", where, shape.dump());
    if (value > 0) elements *= value;
  }
  if (empty) elements = 0;
  const uint64_t begin = unsigned_field(range[0], where, "data_offsets");
  const uint64_t end = unsigned_field(range[1], where, "data_offsets");
  if (begin > end)
    fail(ErrorKind::bad_checkpoint, "{}: data_offsets end {} lies before begin {}", where, end, begin);
  const uint64_t want = elements * dtype_row(where, tensor.dtype).size;
  if (end - begin != want)
    fail(ErrorKind::bad_checkpoint, "{}: {} {} takes {} bytes, data_offsets hold {}", where, tensor.dtype,
         to_string(tensor.shape), want, end - begin);
  if (end > data_bytes)
    fail(ErrorKind::bad_checkpoint, "{}: data ends at byte {}, the file holds {}; download incomplete?",
         where, end, data_bytes);
  tensor.offset = begin;
  tensor.bytes = end - begin;
  return tensor;
}

struct Extent {
  uint64_t begin, end;
  const std::string* name;
};

void check_extents(std::vector<Extent>& extents, uint64_t data_bytes, const std::string& file,
                   std::vector<std::string>& warnings) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t covered = 0;
  const Extent* last = nullptr;
  uint64_t gaps = 0;
  for (const Extent& extent : extents) {
    if (extent.begin == extent.end) continue;
    if (last && extent.begin < last->end)
      fail(ErrorKind::bad_checkpoint, "{}: {} and {} overlap at byte {}", file, *last->name, *extent.name,
           extent.begin);
    gaps += extent.begin - covered;
    covered = extent.end;
    last = &extent;
  }
  gaps += data_bytes - covered;
  if (gaps > 0) warnings.push_back(fmt::format("{}: {} bytes belong to no tensor", file, gaps));
}

}  // namespace

void read_safetensors_header(const std::shared_ptr<const File>& file, StoredTensors& into,
                             std::vector<std::string>& warnings) {
  const std::string path = file->path().string();
  if (file->size() == 0) fail(ErrorKind::bad_checkpoint, "{}: empty file; download incomplete?", path);
  if (file->size() < 8)
    fail(ErrorKind::bad_checkpoint, "{}: {} bytes are too few for a safetensors file; download incomplete?",
         path, file->size());
  std::array<std::byte, 8> prefix;
  file->read(0, prefix);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint64_t>(prefix[static_cast<size_t>(i)]);
  if (length > kMaxHeader)
    fail(ErrorKind::bad_checkpoint, "{}: header of {} bytes, at most {} are read; not a safetensors file?",
         path, length, kMaxHeader);
  if (length > file->size() - 8)
    fail(ErrorKind::bad_checkpoint, "{}: header of {} bytes, the file ends after {}; download incomplete?",
         path, length, file->size() - 8);
  std::string text(static_cast<size_t>(length), '\0');
  file->read(8, std::as_writable_bytes(std::span(text)));
  const json header = parse_header(text, path);

  const uint64_t data = 8 + length, data_bytes = file->size() - data;
  std::vector<Extent> extents;
  for (const auto& item : header.items()) {
    const std::string& name = item.key();
    if (name == "__metadata__") {
      // MLX writes null where there is none.
      if (!item.value().is_object() && !item.value().is_null())
        fail(ErrorKind::bad_checkpoint, "{}: __metadata__ is not an object", path);
      continue;
    }
    if (name.empty() || name.size() > kMaxName)
      fail(ErrorKind::bad_checkpoint, "{}: a tensor name of {} bytes, 1 to {} are read", path, name.size(),
           kMaxName);
    StoredTensor tensor = read_entry(item.value(), fmt::format("{}: {}", path, name), data_bytes);
    extents.push_back({tensor.offset, tensor.offset + tensor.bytes, &item.key()});
    tensor.offset += data;
    tensor.file = file;
    const auto [place, fresh] = into.try_emplace(name, std::move(tensor));
    if (!fresh)
      fail(ErrorKind::bad_checkpoint, "{} is in two files: {} and {}", name,
           place->second.file->path().string(), path);
    extents.back().name = &place->first;
  }
  check_extents(extents, data_bytes, path, warnings);
}

std::optional<uint64_t> safetensors_element_size(const std::string& dtype) {
  const DtypeRow* row = find_dtype(dtype);
  return row ? std::optional(row->size) : std::nullopt;
}

mx::Dtype held_dtype(const StoredTensor& tensor, const std::string& name) {
  const DtypeRow& row = dtype_row(name, tensor.dtype);
  if (!row.supported)
    fail(ErrorKind::unsupported,
         "{}: {}: fp8 weights ({}) are not supported; use a bf16, f16 or MLX-quantised export",
         tensor.file->path().string(), name, tensor.dtype);
  return row.held;
}

array load_stored(const StoredTensor& tensor, const std::string& name) {
  const mx::Dtype held = held_dtype(tensor, name);
  if (tensor.bytes == 0) return allocated(tensor.shape, held);
  auto range = tensor.file->map(tensor.offset, tensor.bytes);
  std::byte* data = range->data();
  if (tensor.dtype == "F64") {
    array out = allocated(tensor.shape, held);
    float* to = out.data<float>();
    for (size_t i = 0; i < out.size(); ++i) {
      double value;
      std::memcpy(&value, data + i * sizeof(double), sizeof(double));
      to[i] = static_cast<float>(value);
    }
    return out;
  }
  if (reinterpret_cast<uintptr_t>(data) % size_of(held) == 0)
    return external(data, tensor.shape, held, std::move(range));
  array out = allocated(tensor.shape, held);
  std::memcpy(mutable_bytes(out), data, out.nbytes());
  return out;
}

}  // namespace mlxcel
