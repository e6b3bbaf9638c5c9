#include "kernels/packed.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/worker_pool.h"
#include "kernels/isa/dispatch.h"
#include "kernels/isa/neon.h"
#include "kernels/packed_codes.h"
#include "kernels/phases.h"
#include "kernels/primitive.h"

namespace mlxcel::kernels {
namespace {

ElementKind kind_of(mx::Dtype dtype) {
  return dtype == mx::float32 ? kF32 : dtype == mx::float16 ? kF16 : kBf16;
}
size_t size_of_kind(ElementKind kind) {
  switch (kind) {
    case kF32:
      return 4;
    case kE8m0:
    case kE4m3:
      return 1;
    default:
      return 2;
  }
}

CodeKind code_of(const QuantFormat& format) {
  switch (format.mode) {
    case QuantMode::mxfp4:
    case QuantMode::nvfp4:
      return kFloat4;
    case QuantMode::mxfp8:
      return kFloat8;
    case QuantMode::affine:
      break;
  }
  switch (format.bits) {
    case 2:
      return kCode2;
    case 3:
      return kCode3;
    case 4:
      return kCode4;
    case 5:
      return kCode5;
    case 6:
      return kCode6;
    default:
      return kCode8;
  }
}

ElementKind scale_kind(const WeightForm& form) {
  switch (form.format->mode) {
    case QuantMode::affine:
      return kind_of(form.dtype);
    case QuantMode::nvfp4:
      return kE4m3;
    default:
      return kE8m0;
  }
}

bool is_affine(const CodeLayout& layout) { return layout.code != kFloat4 && layout.code != kFloat8; }

/// An evaluated array row by row, copied only where it is strided.
struct Plane {
  explicit Plane(const array& a) : row_bytes(static_cast<size_t>(a.shape(-1)) * a.itemsize()) {
    data = reinterpret_cast<const uint8_t*>(a.data<char>());
    if (a.flags().row_contiguous || a.size() == 0) return;
    copy.resize(a.nbytes());
    Gather{a.data<char>(), reinterpret_cast<char*>(copy.data()), a.shape(), a.strides(), a.itemsize()}.run();
    data = copy.data();
  }
  const uint8_t* row(size_t index) const { return data + index * row_bytes; }

  const uint8_t* data;
  size_t row_bytes;
  std::vector<uint8_t> copy;
};

/// Offsets inside a quantised block.
struct BlockMap {
  explicit BlockMap(const CodeLayout& layout, int block_rows)
      : width(words_of(layout.code)),
        group_chunks(layout.group / kChunk),
        lanes(block_rows / 2),
        halves(layout.kind == kE4m3 ? 2 : 1),
        element(size_of_kind(layout.kind)) {
    chunk_bytes = static_cast<size_t>(width) * static_cast<size_t>(block_rows) * 4;
    // Scales and biases, or the scales of two halves.
    const size_t planes = layout.kind == kE8m0 || layout.centred ? 1 : 2;
    group_bytes =
        static_cast<size_t>(group_chunks) * chunk_bytes + planes * static_cast<size_t>(block_rows) * element;
  }
  size_t word(int chunk, int row, int index) const {
    const size_t in_chunk =
        (static_cast<size_t>(row / lanes) * static_cast<size_t>(width) + static_cast<size_t>(index)) *
            static_cast<size_t>(lanes) +
        static_cast<size_t>(row % lanes);
    return static_cast<size_t>(chunk / group_chunks) * group_bytes +
           static_cast<size_t>(chunk % group_chunks) * chunk_bytes + 4 * in_chunk;
  }
  /// Of a group of the format: two of nvfp4's stand behind one group of the layout.
  size_t scale(int group, int row) const {
    const auto half = static_cast<size_t>(group % halves) * 2 * static_cast<size_t>(lanes);
    return static_cast<size_t>(group / halves) * group_bytes +
           static_cast<size_t>(group_chunks) * chunk_bytes + (half + static_cast<size_t>(row)) * element;
  }
  size_t bias(int group, int row) const {
    return scale(group, row) + 2 * static_cast<size_t>(lanes) * element;
  }

  int width, group_chunks, lanes, halves;
  size_t element, chunk_bytes, group_bytes;
};

// ---- The float formats -----------------------------------------------------------------------------

float e4m3(uint8_t v) {
  const int exponent = v >> 3 & 15, mantissa = v & 7;
  const float sign = v & 0x80 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7) return std::nanf("");
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                               : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10));
}
float e8m0(uint8_t v) { return v == 255 ? std::nanf("") : std::ldexp(1.0f, v - 127); }
float e2m1(uint8_t v) {
  constexpr float kValue[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return v & 8 ? -kValue[v & 7] : kValue[v & 7];
}

float element_value(ElementKind kind, const uint8_t* p) {
  if (kind == kE8m0) return e8m0(*p);
  if (kind == kE4m3) return e4m3(*p);
  if (kind == kF32) {
    float v;
    std::memcpy(&v, p, 4);
    return v;
  }
  uint16_t half;
  std::memcpy(&half, p, 2);
  if (kind == kF16) return static_cast<float>(std::bit_cast<mx::float16_t>(half));
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

void put_element(ElementKind kind, float value, uint8_t* p) {
  if (kind == kF32) {
    std::memcpy(p, &value, 4);
    return;
  }
  const auto half = kind == kF16 ? std::bit_cast<uint16_t>(mx::float16_t(value))
                                 : static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  std::memcpy(p, &half, 2);
}

/// A weight's planes, ready to be read by row.
struct Reader {
  explicit Reader(const Weight& w) : weight(w), data(w.data) {
    if (w.scales) scales.emplace(*w.scales);
    if (w.biases) biases.emplace(*w.biases);
  }
  const Weight& weight;
  Plane data;
  std::optional<Plane> scales, biases;
};

void pack_quantized(const Segment& segment, const Reader& reader, size_t row, uint8_t* block, int place) {
  const CodeLayout& layout = segment.layout;
  const BlockMap map(layout, segment.block_rows);
  const uint8_t* codes = reader.data.row(row);
  const size_t width = static_cast<size_t>(map.width), step = 4 * static_cast<size_t>(map.lanes);
  uint32_t word[8];
  for (int chunk = 0; chunk < layout.columns / kChunk; chunk += map.group_chunks) {
    uint8_t* to = block + map.word(chunk, place, 0);
    for (int c = 0; c < map.group_chunks; ++c, to += map.chunk_bytes, codes += 4 * width) {
      chunk_words(codes, layout.code, word);
      for (size_t q = 0; q < width; ++q) std::memcpy(to + q * step, word + q, 4);
    }
  }
  const auto spread = [&](const uint8_t* from, size_t at) {
    for (int g = 0; g < layout.columns / layout.group; ++g, at += map.group_bytes)
      if (map.element == 2)
        std::memcpy(block + at, from + 2 * g, 2);
      else
        std::memcpy(block + at, from + static_cast<size_t>(g) * map.element, map.element);
  };
  if (map.halves == 1) {
    spread(reader.scales->row(row), map.scale(0, place));
    if (reader.biases && !layout.centred) spread(reader.biases->row(row), map.bias(0, place));
    return;
  }
  for (int g = 0; g < map.halves * (layout.columns / layout.group); ++g)
    std::memcpy(block + map.scale(g, place), reader.scales->row(row) + static_cast<size_t>(g) * map.element,
                map.element);
}

void pack_dense(const Segment& segment, const Reader& reader, size_t row, int columns, uint8_t* block,
                int place) {
  const size_t element = size_of_kind(segment.kind);
  const uint8_t* from = reader.data.row(row);
  for (int k = 0; k < columns; ++k)
    std::memcpy(block + (static_cast<size_t>(k) * kDenseRows + static_cast<size_t>(place)) * element,
                from + static_cast<size_t>(k) * element, element);
}

/// What a centred layout has in place of a bias; exact in the type that the bias was exact in.
float middle_of(const CodeLayout& layout, float scale) {
  return -static_cast<float>(half_range(layout.code)) * scale;
}

/// Whether all biases of an integer format follow from their scales, as those of symmetric formats do.
bool is_centred(const Weight& weight) {
  if (weight.format->mode != QuantMode::affine) return false;
  const Plane scales(*weight.scales), biases(*weight.biases);
  const ElementKind kind = kind_of(weight.scales->dtype());
  const CodeLayout layout{code_of(*weight.format), weight.format->group_size, kind, weight.shape.back()};
  const size_t element = size_of_kind(kind);
  const int groups = weight.scales->shape(-1);
  const int rows = static_cast<int>(weight.scales->size() / static_cast<size_t>(groups));
  // Half precision by its bits: times a power of two only the exponent changes.
  const int power = words_of(layout.code) - 1;
  const auto follows = [&](const uint8_t* scale, const uint8_t* bias) {
    uint16_t s, b;
    std::memcpy(&s, scale, 2);
    std::memcpy(&b, bias, 2);
    const int exponent = s >> 10 & 31;
    if (kind == kF16 && exponent > 0 && exponent + power < 31)
      return b == static_cast<uint16_t>((s ^ 0x8000) + (power << 10));
    return element_value(kind, bias) == middle_of(layout, element_value(kind, scale));
  };
  std::atomic<bool> all{true};
  auto& pool = WorkerPool::shared();
  pool.each(rows, std::clamp(rows / (16 * pool.width()), 1, 256), [&](int begin, int end) {
    for (int row = begin; row < end && all.load(std::memory_order_relaxed); ++row)
      for (size_t at = 0; at < static_cast<size_t>(groups) * element; at += element)
        if (!follows(scales.row(static_cast<size_t>(row)) + at, biases.row(static_cast<size_t>(row)) + at)) {
          all.store(false, std::memory_order_relaxed);
          break;
        }
  });
  return all;
}

/// Whether two weights can lie in one segment.
bool same_format(const WeightForm& a, const WeightForm& b) {
  return a.format == b.format && (a.dtype == b.dtype || (a.format && a.format->mode != QuantMode::affine));
}

int out_rows(const Shape& shape) { return shape[shape.size() - 2]; }

}  // namespace

const MatmulBodies& matmul_bodies() {
  switch (isa()) {
#if defined(__x86_64__)
    case Isa::avx2:
      return matmul_avx2();
    case Isa::avx512:
      return matmul_avx512();
#elif defined(__aarch64__)
    case Isa::neon:
      return matmul_neon();
    case Isa::i8mm:
      return matmul_i8mm();
#endif
    default:
      return matmul_generic();
  }
}

void lay_out(Matrix::Storage& storage, std::span<const WeightForm> forms, bool gated,
             const std::function<bool(size_t first, size_t last)>& centred) {
  if (!storage.bodies) storage.bodies = &matmul_bodies();
  const bool fused = gated && same_format(forms[0], forms[1]);
  // Which weights share a segment: [first, last)
  for (size_t first = 0, last = 0; first < forms.size(); first = last) {
    const WeightForm& head = forms[first];
    last = first + 1;
    if (!gated || fused)
      while (last < forms.size() && same_format(head, forms[last])) ++last;
    Segment segment;
    segment.gated = fused;
    segment.column0 =
        storage.segments.empty() ? 0 : storage.segments.back().column0 + storage.segments.back().rows;
    for (size_t i = first; i < last; ++i) {
      const int half = fused && i == 1 ? 1 : 0;
      storage.sources.push_back({.name = forms[i].name,
                                 .shape = forms[i].shape,
                                 .format = forms[i].format,
                                 .dtype = forms[i].dtype,
                                 .segment = static_cast<int>(storage.segments.size()),
                                 .row0 = half ? 0 : segment.rows,
                                 .half = half});
      if (!half) segment.rows += out_rows(forms[i].shape);
    }
    segment.dense = !head.format;
    if (segment.dense) {
      segment.kind = kind_of(head.dtype);
      segment.block_rows = kDenseRows;
      segment.block_bytes = static_cast<size_t>(storage.columns) * kDenseRows * size_of_kind(segment.kind);
    } else {
      segment.layout = {code_of(*head.format), std::max(head.format->group_size, kChunk), scale_kind(head),
                        storage.columns};
      segment.layout.centred = centred(first, last);
      segment.block_rows = 2 * storage.bodies->lanes;
      segment.block_bytes = static_cast<size_t>(storage.columns / segment.layout.group) *
                            BlockMap(segment.layout, segment.block_rows).group_bytes;
    }
    const int per_block = segment.gated ? segment.block_rows / 2 : segment.block_rows;
    segment.blocks = (segment.rows + per_block - 1) / per_block;
    storage.segments.push_back(std::move(segment));
  }
}

namespace {

/// Fills a segment with its weights, whose sources begin at `source0`.
void fill(const Matrix::Storage& storage, Segment& segment, std::span<const Weight> weights, size_t source0) {
  std::vector<Reader> readers;
  readers.reserve(weights.size());
  for (const Weight& weight : weights) readers.emplace_back(weight);
  const int total = std::max(1, storage.experts) * segment.blocks;
  const int per_block = segment.gated ? segment.block_rows / 2 : segment.block_rows;
  const auto pack_block = [&](int index) {
    const int expert = index / segment.blocks, block = index % segment.blocks;
    uint8_t* const to = segment.block(expert, block);
    if ((block + 1) * per_block > segment.rows) std::memset(to, 0, segment.block_bytes);
    for (size_t i = 0; i < readers.size(); ++i) {
      const Source& source = storage.sources[source0 + i];
      const int rows = out_rows(source.shape);
      const int from = std::max(block * per_block - source.row0, 0);
      const int until = std::min((block + 1) * per_block - source.row0, rows);
      for (int row = from; row < until; ++row) {
        const auto place = segment.place(source.row0 + row, source.half);
        const size_t at = static_cast<size_t>(expert) * static_cast<size_t>(rows) + static_cast<size_t>(row);
        if (segment.dense)
          pack_dense(segment, readers[i], at, storage.columns, to, place.row);
        else
          pack_quantized(segment, readers[i], at, to, place.row);
      }
    }
  };
  run_tasks(total, std::clamp(total / (16 * WorkerPool::shared().width()), 1, 64), [&](int begin, int end) {
    for (int index = begin; index < end; ++index) pack_block(index);
  });
}

}  // namespace

void pack(Matrix::Storage& storage, std::span<const Weight> weights, bool gated) {
  std::vector<WeightForm> forms;
  for (const Weight& weight : weights) forms.push_back(form_of(weight));
  lay_out(storage, forms, gated, [&](size_t first, size_t last) {
    return std::all_of(weights.begin() + static_cast<ptrdiff_t>(first),
                       weights.begin() + static_cast<ptrdiff_t>(last), is_centred);
  });
  size_t source0 = 0;
  for (size_t s = 0; s < storage.segments.size(); ++s) {
    Segment& segment = storage.segments[s];
    size_t count = 0;
    while (source0 + count < storage.sources.size() &&
           storage.sources[source0 + count].segment == static_cast<int>(s))
      ++count;
    segment.memory = packed_memory(storage.bytes_of(segment));
    fill(storage, segment, weights.subspan(source0, count), source0);
    source0 += count;
  }
}

std::vector<Weight> unpack(const Matrix::Storage& storage) {
  if (storage.mode == KernelMode::reference) return storage.planes;
  const auto make = [](const Shape& shape, mx::Dtype dtype) {
    array a(shape, dtype, nullptr, {});
    a.set_data(mx::allocator::malloc(a.nbytes()));
    a.set_status(array::Status::available);
    return a;
  };
  std::vector<Weight> out;
  for (const Source& source : storage.sources) {
    const Segment& segment = storage.segments[static_cast<size_t>(source.segment)];
    const int experts = std::max(1, storage.experts), columns = storage.columns;
    const int rows = source.shape[source.shape.size() - 2];
    const auto each_row = [&](const auto& visit) {
      for (int expert = 0; expert < experts; ++expert)
        for (int row = 0; row < rows; ++row) {
          const auto place = segment.place(source.row0 + row, source.half);
          visit(static_cast<size_t>(expert) * static_cast<size_t>(rows) + static_cast<size_t>(row),
                segment.block(expert, place.block), place.row);
        }
    };
    if (segment.dense) {
      array data = make(source.shape, source.dtype);
      const size_t element = size_of_kind(segment.kind);
      each_row([&](size_t row, const uint8_t* block, int place) {
        char* to = data.data<char>() + row * static_cast<size_t>(columns) * element;
        for (int k = 0; k < columns; ++k)
          std::memcpy(to + static_cast<size_t>(k) * element,
                      block + (static_cast<size_t>(k) * kDenseRows + static_cast<size_t>(place)) * element,
                      element);
      });
      out.push_back({source.name, source.shape, data, std::nullopt, std::nullopt, std::nullopt});
      continue;
    }
    const BlockMap map(segment.layout, segment.block_rows);
    const int bits = source.format->bits, groups = columns / source.format->group_size;
    Shape words = source.shape, planes = source.shape;
    words.back() = columns / 32 * bits;
    planes.back() = groups;
    array data = make(words, mx::uint32);
    array scales = make(planes, source.dtype);
    std::optional<array> biases;
    if (is_affine(segment.layout)) biases = make(planes, source.dtype);
    each_row([&](size_t row, const uint8_t* block, int place) {
      auto* to = reinterpret_cast<uint8_t*>(data.data<char>()) + row * static_cast<size_t>(words.back()) * 4;
      for (int chunk = 0; chunk < columns / kChunk; ++chunk, to += 4 * bits) {
        uint32_t word[8];
        uint8_t code[kChunk];
        for (int q = 0; q < map.width; ++q) std::memcpy(word + q, block + map.word(chunk, place, q), 4);
        from_words(word, segment.layout.code, code);
        write_codes(code, bits, to);
      }
      for (int g = 0; g < groups; ++g) {
        const size_t at = (row * static_cast<size_t>(groups) + static_cast<size_t>(g)) * map.element;
        std::memcpy(scales.data<char>() + at, block + map.scale(g, place), map.element);
        if (!biases) continue;
        auto* const bias = reinterpret_cast<uint8_t*>(biases->data<char>()) + at;
        if (segment.layout.centred)
          put_element(
              segment.layout.kind,
              middle_of(segment.layout, element_value(segment.layout.kind, block + map.scale(g, place))),
              bias);
        else
          std::memcpy(bias, block + map.bias(g, place), map.element);
      }
    });
    out.push_back({source.name, source.shape, data, scales, biases, source.format});
  }
  return out;
}

void decode_row(const Matrix::Storage& storage, int row, float* out) {
  size_t index = 0;
  while (row >= storage.segments[index].column0 + storage.segments[index].rows) ++index;
  const Segment& segment = storage.segments[index];
  const auto place = segment.place(row - segment.column0, 0);
  const uint8_t* const block = segment.block(0, place.block);
  const int columns = storage.columns;
  if (segment.dense) {
    const size_t element = size_of_kind(segment.kind);
    for (int k = 0; k < columns; ++k)
      out[k] = element_value(
          segment.kind,
          block + (static_cast<size_t>(k) * kDenseRows + static_cast<size_t>(place.row)) * element);
    return;
  }
  const BlockMap map(segment.layout, segment.block_rows);
  const CodeLayout& layout = segment.layout;
  for (int chunk = 0; chunk < columns / kChunk; ++chunk) {
    uint32_t word[8];
    uint8_t code[kChunk];
    for (int q = 0; q < map.width; ++q) std::memcpy(word + q, block + map.word(chunk, place.row, q), 4);
    from_words(word, layout.code, code);
    float* const to = out + chunk * kChunk;
    if (is_affine(layout)) {
      const int group = chunk / map.group_chunks;
      const float scale = element_value(layout.kind, block + map.scale(group, place.row));
      const float bias = layout.centred ? middle_of(layout, scale)
                                        : element_value(layout.kind, block + map.bias(group, place.row));
      for (int i = 0; i < kChunk; ++i) to[i] = static_cast<float>(code[i]) * scale + bias;
      continue;
    }
    for (int i = 0; i < kChunk; ++i) {
      const int group = chunk * map.halves + i * map.halves / kChunk;
      const float scale = element_value(layout.kind, block + map.scale(group, place.row));
      to[i] = (layout.code == kFloat4 ? e2m1(code[i]) : e4m3(code[i])) * scale;
    }
  }
}

}  // namespace mlxcel::kernels
