// SentencePiece's model file: a protobuf message ModelProto (sentencepiece_model.proto of the reference
// implementation). Only the fields that decide how text is encoded are read; the rest is skipped by its wire
// type.
#include <bit>
#include <cstring>

#include "base/error.h"
#include "text/vocabulary.h"

namespace mlxcel {

namespace {

constexpr size_t kMostPieces = size_t{1} << 22;

/// One field of a protobuf message.
struct Field {
  uint64_t number = 0;
  enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 } wire = Wire::varint;
  uint64_t integer = 0;  // varint and fixed
  std::string_view bytes;
};

/// Reads a message field by field.
class Message {
 public:
  Message(std::string_view bytes, const std::string& where)
      : rest_(bytes), size_(bytes.size()), where_(where) {}

  bool next(Field& out) {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    out.number = key >> 3;
    if (out.number == 0) broken("field number 0");
    switch (key & 7) {
      case 0:
        out.wire = Field::Wire::varint;
        out.integer = varint();
        break;
      case 1:
        out.wire = Field::Wire::fixed64;
        out.integer = fixed(8);
        break;
      case 2: {
        out.wire = Field::Wire::bytes;
        const uint64_t length = varint();
        if (length > rest_.size()) broken("a field reaches past the end");
        out.bytes = rest_.substr(0, static_cast<size_t>(length));
        rest_.remove_prefix(static_cast<size_t>(length));
        break;
      }
      case 5:
        out.wire = Field::Wire::fixed32;
        out.integer = fixed(4);
        break;
      default:
        broken("a wire type that SentencePiece does not write");
    }
    return true;
  }

  [[noreturn]] void broken(const char* what) const {
    fail(ErrorKind::bad_checkpoint, "{}: not a SentencePiece model: {} at byte {} of a message of {}", where_,
         what, size_ - rest_.size(), size_);
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) broken("it ends inside a number");
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    broken("a number longer than 64 bits");
  }

  uint64_t fixed(size_t bytes) {
    if (rest_.size() < bytes) broken("it ends inside a number");
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(bytes);
    return value;
  }

  std::string_view rest_;
  size_t size_;
  const std::string& where_;
};

int64_t signed_value(const Field& field) {
  return static_cast<int32_t>(static_cast<uint32_t>(field.integer));
}

void read_piece(std::string_view bytes, const std::string& where, VocabularyFile& out) {
  if (out.tokens.size() == kMostPieces)
    fail(ErrorKind::bad_checkpoint, "{}: more than {} pieces", where, kMostPieces);
  Message message(bytes, where);
  std::string piece;
  float score = 0;
  int32_t kind = static_cast<int32_t>(TokenKind::normal);
  for (Field field; message.next(field);) {
    if (field.number == 1 && field.wire == Field::Wire::bytes) piece = field.bytes;
    if (field.number == 2 && field.wire == Field::Wire::fixed32)
      score = std::bit_cast<float>(static_cast<uint32_t>(field.integer));
    if (field.number == 3 && field.wire == Field::Wire::varint) {
      if (field.integer < 1 || field.integer > 6)
        fail(ErrorKind::bad_checkpoint, "{}: piece {}: type {} is none of 1 to 6", where, out.tokens.size(),
             field.integer);
      kind = static_cast<int32_t>(field.integer);
    }
  }
  out.tokens.push_back(std::move(piece));
  out.scores.push_back(score);
  out.kinds.push_back(kind);
}

void read_trainer(std::string_view bytes, const std::string& where, VocabularyFile& out) {
  int64_t model_type = 1, pad = -1;
  out.unk = 0, out.bos = 1, out.eos = 2;  // the message's own defaults
  Message message(bytes, where);
  for (Field field; message.next(field);) {
    if (field.wire != Field::Wire::varint) continue;
    switch (field.number) {
      case 3:
        model_type = signed_value(field);
        break;
      case 24:
        out.space_as_suffix = field.integer != 0;
        break;
      case 40:
        out.unk = signed_value(field);
        break;
      case 41:
        out.bos = signed_value(field);
        break;
      case 42:
        out.eos = signed_value(field);
        break;
      case 43:
        pad = signed_value(field);
        break;
      default:
        break;
    }
  }
  if (model_type != 1 && model_type != 2)
    fail(ErrorKind::unsupported, "{}: SentencePiece model type {} (1, unigram, and 2, BPE, are read)", where,
         model_type);
  out.model = model_type == 2 ? "llama" : "t5";
  if (pad >= 0) out.special.push_back(pad);
}

void read_normalizer(std::string_view bytes, const std::string& where, VocabularyFile& out) {
  out.add_space_prefix = 1, out.remove_extra_whitespaces = 1;  // the message's own defaults
  Message message(bytes, where);
  for (Field field; message.next(field);) {
    if (field.number == 2 && field.wire == Field::Wire::bytes) out.charsmap = field.bytes;
    if (field.wire != Field::Wire::varint) continue;
    if (field.number == 3) out.add_space_prefix = field.integer != 0;
    if (field.number == 4) out.remove_extra_whitespaces = field.integer != 0;
    if (field.number == 5 && field.integer == 0)
      fail(ErrorKind::unsupported,
           "{}: escape_whitespaces is off; only models that write blanks as U+2581 are read", where);
  }
}

}  // namespace

VocabularyFile read_sentencepiece(const std::string& bytes, const std::string& where) {
  VocabularyFile out;
  read_trainer({}, where, out);
  read_normalizer({}, where, out);
  Message message(bytes, where);
  for (Field field; message.next(field);) {
    if (field.wire != Field::Wire::bytes) continue;
    if (field.number == 1) read_piece(field.bytes, where, out);
    if (field.number == 2) read_trainer(field.bytes, where, out);
    if (field.number == 3) read_normalizer(field.bytes, where, out);
  }
  if (out.tokens.empty())
    fail(ErrorKind::bad_checkpoint, "{}: not a SentencePiece model: it has no pieces", where);
  return out;
}

}  // namespace mlxcel
