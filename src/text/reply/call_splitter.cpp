#include "text/reply/call_splitter.h"

#include <algorithm>
#include <random>

#include "text/reply/call_cursor.h"

namespace mlxcel {
namespace {

std::string fresh_id(const std::string& prefix) {
  static constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 generator{[] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }()};
  std::uniform_int_distribution<size_t> pick(0, alphabet.size() - 1);
  std::string out = prefix;
  for (int i = 0; i < 24; ++i) out += alphabet[pick(generator)];
  return out;
}

bool all_blank(std::string_view text) { return skip_blanks(text, 0) == text.size(); }

/// Nothing can be decided before one of these has come, so a long call is not read again with every token.
bool may_decide(const CallFrame& frame, std::string_view buffer, size_t seen) {
  if (frame.head_only && seen < 128) return true;
  const char* signs = frame.close.empty() && frame.scan != scan_invoke ? "]})" : ">`]";
  return buffer.substr(seen).find_first_of(signs) != std::string_view::npos;
}

}  // namespace

void append_text(std::vector<ReplyPiece>& pieces, ReplyPiece::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (!pieces.empty() && pieces.back().kind == kind) {
    pieces.back().text += text;
    return;
  }
  ReplyPiece piece;
  piece.kind = kind;
  piece.text = text;
  pieces.push_back(std::move(piece));
}

CallSplitter::CallSplitter(std::vector<CallFrame> frames, std::vector<std::string> silent,
                           std::shared_ptr<const ToolTypes> tools, std::string id_prefix)
    : frames_(std::move(frames)),
      silent_(std::move(silent)),
      tools_(std::move(tools)),
      id_prefix_(std::move(id_prefix)) {}

void CallSplitter::content(std::string_view text, std::vector<ReplyPiece>& out) {
  if (text.empty()) return;
  if (all_blank(text)) {
    blanks_ += text;  // shown when text follows
    return;
  }
  // Blanks between calls, and between a call and the text after it, belong to the calls.
  std::string_view rest = text;
  if (after_call_) {
    blanks_.clear();
    rest.remove_prefix(skip_blanks(rest, 0));
  }
  after_call_ = head_ = false;
  append_text(out, ReplyPiece::Kind::content, blanks_);
  blanks_.clear();
  size_t end = rest.size();
  while (end > 0 && all_blank(rest.substr(end - 1))) --end;
  append_text(out, ReplyPiece::Kind::content, rest.substr(0, end));
  blanks_ = rest.substr(end);
}

void CallSplitter::add_call(ToolCall call, std::vector<ReplyPiece>& out) {
  blanks_.clear();
  after_call_ = true;
  ReplyPiece piece;
  piece.kind = ReplyPiece::Kind::call;
  piece.index = calls_++;
  // A format's own id is kept, once.
  const bool usable =
      !call.id.empty() && call.id.size() <= 64 && std::find(ids_.begin(), ids_.end(), call.id) == ids_.end();
  if (!usable) call.id = fresh_id(id_prefix_);
  ids_.push_back(call.id);
  piece.call = std::move(call);
  out.push_back(std::move(piece));
}

/// The earliest mark in the buffer; `which` counts frames first, then silent ones, then the frames' ends.
bool CallSplitter::find_mark(size_t& at, int& which) const {
  at = std::string::npos;
  size_t length = 0;
  auto consider = [&](size_t found, size_t size, int id) {
    if (found == std::string::npos || found > at || (found == at && size <= length)) return;
    at = found;
    length = size;
    which = id;
  };
  int id = 0;
  for (const auto& frame : frames_) {
    if (frame.head_only) {
      const size_t first = skip_blanks(buffer_, 0);
      if (head_ && first < buffer_.size() &&
          std::string_view(buffer_).substr(first).starts_with(frame.open)) {
        consider(first, frame.open.size(), id);
      }
    } else {
      consider(buffer_.find(frame.open), frame.open.size(), id);
    }
    ++id;
  }
  for (const auto& mark : silent_) consider(buffer_.find(mark), mark.size(), id++);
  if (calls_ > 0) {
    for (const auto& frame : frames_) {
      if (!frame.close.empty() && frame.close.size() > 3)
        consider(buffer_.find(frame.close), frame.close.size(), id);
      ++id;
    }
  }
  return at != std::string::npos;
}

bool CallSplitter::scan(std::vector<ReplyPiece>& out, bool last, bool whole) {
  const CallFrame& frame = frames_[static_cast<size_t>(frame_)];
  if (!last && scanned_ > 0 && !may_decide(frame, buffer_, scanned_)) {
    scanned_ = buffer_.size();
    return false;
  }
  scanned_ = buffer_.size();
  CallScan scan = frame.scan(buffer_, frame, {*tools_, last, whole});
  for (; emitted_ < scan.calls.size(); ++emitted_) add_call(std::move(scan.calls[emitted_]), out);
  if (scan.status == CallScan::Status::need_more) return false;
  size_t used = scan.used;
  if (scan.status == CallScan::Status::rejected) {
    if (scan.calls.empty()) {
      // No call after all: its mark is text, and what follows is looked at again.
      used = frame.open.size();
      const std::string text = buffer_.substr(0, used);
      if (!frame.head_only) unparsed_ = true;
      content(text, out);
    } else {
      used = scan.resume;
      unparsed_ = unparsed_ || !all_blank(std::string_view(buffer_).substr(used));
    }
  }
  buffer_.erase(0, used);
  frame_ = -1;
  emitted_ = 0;
  scanned_ = 0;
  return true;
}

void CallSplitter::advance(std::vector<ReplyPiece>& out, bool last, bool whole) {
  for (;;) {
    if (frame_ >= 0) {
      if (!scan(out, last, whole)) return;
      continue;
    }
    if (after_call_) {  // Llama's list of calls
      const size_t first = skip_blanks(buffer_, 0);
      if (first < buffer_.size() && buffer_[first] == ';') buffer_.erase(0, first + 1);
    }
    size_t at = 0;
    int which = 0;
    if (find_mark(at, which)) {
      content(std::string_view(buffer_).substr(0, at), out);
      buffer_.erase(0, at);
      if (which < static_cast<int>(frames_.size())) {
        frame_ = which;
      } else {
        const auto silent = static_cast<size_t>(which) - frames_.size();
        buffer_.erase(0, silent < silent_.size() ? silent_[silent].size()
                                                 : frames_[silent - silent_.size()].close.size());
      }
      continue;
    }
    size_t held = 0;
    if (!last) {
      for (const auto& frame : frames_) {
        if (!frame.head_only) held = std::max(held, held_suffix(buffer_, frame.open));
        if (calls_ > 0 && frame.close.size() > 3) held = std::max(held, held_suffix(buffer_, frame.close));
      }
      for (const auto& mark : silent_) held = std::max(held, held_suffix(buffer_, mark));
    }
    content(std::string_view(buffer_).substr(0, buffer_.size() - held), out);
    buffer_.erase(0, buffer_.size() - held);
    break;
  }
  if (last) {
    if (!after_call_) append_text(out, ReplyPiece::Kind::content, blanks_);
    blanks_.clear();
  }
}

}  // namespace mlxcel
