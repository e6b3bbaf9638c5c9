#include "kernels/packed_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "kernels/isa/dispatch.h"
#include "kernels/packed.h"
#include "kernels/phases.h"

namespace mlxcel::kernels {
namespace {

// Of this file's own layout and of the blocks': to be raised with either.
constexpr uint32_t kVersion = 1;
constexpr char kMagic[8] = {'m', 'l', 'x', 'c', 'p', 'a', 'c', 'k'};
constexpr uint64_t kAlign = 4096;
constexpr uint64_t kMostHeader = uint64_t{64} << 20;
constexpr size_t kPiece = size_t{256} << 10;  // read and checked at a time

struct Preamble {
  char magic[8];
  uint32_t version;
  uint32_t spare;
  uint64_t header_bytes, header_checksum;
  uint64_t file_bytes;
};

/// 64 bits that any changed bit changes: four lanes of multiply and rotate.
uint64_t checksum(std::span<const std::byte> bytes) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
  uint64_t lane[4] = {1, 2, 3, 4};
  const auto mix = [](uint64_t h, uint64_t word) { return std::rotl((h ^ word) * kFactor, 29); };
  size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32) {
    uint64_t word[4];
    std::memcpy(word, bytes.data() + at, 32);
    for (int i = 0; i < 4; ++i) lane[i] = mix(lane[i], word[i]);
  }
  uint64_t rest[4] = {};
  std::memcpy(rest, bytes.data() + at, bytes.size() - at);
  uint64_t all = bytes.size();
  for (int i = 0; i < 4; ++i) all = mix(all, mix(lane[i], rest[i]));
  return all;
}

/// Of a segment: the pieces' checksums, each with its number, so that workers may take them in any order.
uint64_t numbered(uint64_t sum, size_t piece) { return std::rotl(sum, static_cast<int>(piece % 63)) + piece; }

uint64_t segment_checksum(const uint8_t* data, size_t bytes) {
  uint64_t all = 0;
  for (size_t at = 0; at < bytes; at += kPiece)
    all += numbered(checksum(std::as_bytes(std::span(data + at, std::min(kPiece, bytes - at)))), at / kPiece);
  return all;
}

/// A matrix in words: what it is made of, and for which bodies.
std::string described(std::span<const WeightForm> forms, bool gated, int lanes) {
  std::string text = fmt::format("{} of {}", gated ? "gated" : "rows", lanes);
  for (const WeightForm& f : forms) {
    text += fmt::format("|{} {} {}", f.name, to_string(f.shape), static_cast<int>(f.dtype.val()));
    if (f.format)
      text += fmt::format(" {} {} {}", to_string(f.format->mode), f.format->bits, f.format->group_size);
  }
  return text;
}

std::string whole_key(std::string_view key) { return fmt::format("{}\n{}", isa_name(), key); }

class HeaderWriter {
 public:
  void number(uint64_t value) { raw(&value, sizeof value); }
  void text(std::string_view value) {
    number(value.size());
    raw(value.data(), value.size());
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void raw(const void* data, size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  std::string bytes_;
};

/// Reads past the end give zeros and make it bad.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view bytes) : left_(bytes) {}
  uint64_t number() {
    uint64_t value = 0;
    const std::string_view from = take(sizeof value);
    if (!bad_) std::memcpy(&value, from.data(), sizeof value);
    return value;
  }
  std::string_view text() { return take(number()); }
  bool bad() const { return bad_; }
  bool done() const { return left_.empty() && !bad_; }

 private:
  std::string_view take(uint64_t size) {
    if (bad_ || size > left_.size()) {
      bad_ = true;
      return {};
    }
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  std::string_view left_;
  bool bad_ = false;
};

uint64_t aligned(uint64_t offset) { return (offset + kAlign - 1) / kAlign * kAlign; }

}  // namespace

std::shared_ptr<const PackedFile> PackedFile::open(const std::filesystem::path& path, std::string_view key,
                                                   Use use, std::string* why) {
  const auto refuse = [&](std::string reason) -> std::shared_ptr<const PackedFile> {
    if (why) *why = std::move(reason);
    return nullptr;
  };
  try {
    auto packed = std::make_shared<PackedFile>();
    packed->use_ = use;
    packed->file_ = File::open(path);
    const File& file = *packed->file_;
    Preamble preamble{};
    if (file.size() < sizeof preamble) return refuse("shorter than its preamble");
    file.read(0, std::as_writable_bytes(std::span(&preamble, 1)));
    if (std::memcmp(preamble.magic, kMagic, sizeof kMagic) != 0) return refuse("no file of packed weights");
    if (preamble.version != kVersion)
      return refuse(fmt::format("version {}, expected {}", preamble.version, kVersion));
    if (preamble.file_bytes != file.size())
      return refuse(fmt::format("{} bytes, its preamble says {}", file.size(), preamble.file_bytes));
    if (preamble.header_bytes > std::min(kMostHeader, file.size() - sizeof preamble))
      return refuse(fmt::format("a header of {} bytes", preamble.header_bytes));
    std::string header(static_cast<size_t>(preamble.header_bytes), '\0');
    file.read(sizeof preamble, std::as_writable_bytes(std::span(header)));
    if (checksum(std::as_bytes(std::span(header))) != preamble.header_checksum)
      return refuse("its header is damaged");
    HeaderReader reader(header);
    if (reader.text() != whole_key(key)) return refuse("written for another checkpoint, build or processor");
    const uint64_t count = reader.number();
    for (uint64_t i = 0; i < count && !reader.bad(); ++i) {
      std::string name(reader.text());
      std::vector<Piece> pieces;
      const uint64_t segments = reader.number();
      for (uint64_t s = 0; s < segments && !reader.bad(); ++s) {
        Piece piece;
        piece.offset = reader.number();
        piece.bytes = reader.number();
        piece.checksum = reader.number();
        piece.centred = reader.number() != 0;
        if (piece.offset % kAlign != 0 || piece.offset > file.size() ||
            piece.bytes > file.size() - piece.offset)
          return refuse(fmt::format("a matrix at byte {} of {}", piece.offset, file.size()));
        pieces.push_back(piece);
      }
      packed->matrices_.emplace(std::move(name), std::move(pieces));
    }
    if (!reader.done()) return refuse("its header does not end where it should");
    return packed;
  } catch (const Error& error) {
    return refuse(error.what());
  }
}

std::optional<Matrix> PackedFile::find(std::span<const WeightForm> forms, bool gated) const {
  auto storage = make_storage(forms, gated);
  if (storage->mode != KernelMode::native) return std::nullopt;
  storage->bodies = &matmul_bodies();
  const auto found = matrices_.find(described(forms, gated, storage->bodies->lanes));
  if (found == matrices_.end()) return std::nullopt;
  const std::vector<Piece>& pieces = found->second;
  // A segment's number is known only once those before it are laid out.
  lay_out(*storage, forms, gated, [&](size_t, size_t) {
    const size_t segment = storage->segments.size();
    return segment < pieces.size() && pieces[segment].centred;
  });
  if (pieces.size() != storage->segments.size()) return std::nullopt;
  for (size_t s = 0; s < pieces.size(); ++s) {
    const Piece& piece = pieces[s];
    Segment& segment = storage->segments[s];
    const size_t bytes = storage->bytes_of(segment);
    if (piece.bytes != bytes) return std::nullopt;
    std::shared_ptr<const MappedRange> range;
    if (use_ == Use::map) {
      range = file_->view(piece.offset, bytes);
      segment.memory = {range, reinterpret_cast<uint8_t*>(const_cast<std::byte*>(range->bytes().data()))};
    } else {
      segment.memory = packed_memory(bytes);
    }
    std::atomic<uint64_t> sum{0};
    std::atomic<bool> failed{false};
    run_tasks(static_cast<int>((bytes + kPiece - 1) / kPiece), 1, [&](int begin, int end) {
      for (int i = begin; i < end; ++i) {
        const size_t at = static_cast<size_t>(i) * kPiece;
        const auto part =
            std::as_writable_bytes(std::span(segment.memory.get() + at, std::min(kPiece, bytes - at)));
        try {
          if (use_ == Use::read) file_->read(piece.offset + at, part);
          sum.fetch_add(numbered(checksum(part), static_cast<size_t>(i)), std::memory_order_relaxed);
        } catch (const std::exception&) {
          failed.store(true, std::memory_order_relaxed);
        }
      }
    });
    if (failed.load() || sum.load() != piece.checksum) {
      damaged_.store(true);
      return std::nullopt;
    }
  }
  return Matrix(std::move(storage));
}

bool PackedFile::write(const std::filesystem::path& path, std::string_view key,
                       std::span<const Matrix> matrices, const std::atomic<bool>& stop) {
  const auto header_of = [&](uint64_t data_at, uint64_t* end) {
    HeaderWriter header;
    header.text(whole_key(key));
    header.number(matrices.size());
    uint64_t at = data_at;
    for (const Matrix& matrix : matrices) {
      const Matrix::Storage& storage = *matrix.storage();
      std::vector<WeightForm> forms;
      for (const Source& s : storage.sources) forms.push_back({s.name, s.shape, s.format, s.dtype});
      header.text(described(forms, storage.gate_up, storage.bodies->lanes));
      header.number(storage.segments.size());
      for (const Segment& segment : storage.segments) {
        const size_t bytes = storage.bytes_of(segment);
        header.number(at);
        header.number(bytes);
        header.number(data_at == 0 ? 0 : segment_checksum(segment.memory.get(), bytes));
        header.number(!segment.dense && segment.layout.centred ? 1 : 0);
        at = aligned(at + bytes);
      }
    }
    *end = at;
    return header;
  };
  for (const Matrix& matrix : matrices)
    if (matrix.storage()->mode != KernelMode::native)
      fail(ErrorKind::internal, "{}: only packed matrices can be written", path.string());
  // Numbers have one width, so a first writing tells where the data begin.
  uint64_t end = 0;
  const uint64_t data_at = aligned(sizeof(Preamble) + header_of(0, &end).bytes().size());
  const std::string header = header_of(data_at, &end).bytes();
  Preamble preamble{};
  std::memcpy(preamble.magic, kMagic, sizeof kMagic);
  preamble.version = kVersion;
  preamble.header_bytes = header.size();
  preamble.header_checksum = checksum(std::as_bytes(std::span(header)));
  preamble.file_bytes = end;
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&preamble, 1)));
  file.write(header);
  const auto pad = [&] {
    file.write(std::string(static_cast<size_t>(aligned(file.written()) - file.written()), '\0'));
  };
  pad();
  for (const Matrix& matrix : matrices) {
    const Matrix::Storage& storage = *matrix.storage();
    for (const Segment& segment : storage.segments) {
      const size_t bytes = storage.bytes_of(segment);
      for (size_t at = 0; at < bytes; at += kPiece) {
        if (stop.load(std::memory_order_relaxed)) return false;
        file.write(std::as_bytes(std::span(segment.memory.get() + at, std::min(kPiece, bytes - at))));
      }
      pad();
    }
  }
  file.commit();
  return true;
}

}  // namespace mlxcel::kernels
