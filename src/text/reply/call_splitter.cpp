#include "text/reply/call_splitter.h"

#include <algorithm>
#include <random>

#include "text/reply/call_cursor.h"
#include "text/reply/call_probe.h"

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
  const char* signs = frame.scan == scan_python                          ? ",)]>`"
                      : frame.close.empty() && frame.scan != scan_invoke ? "]})"
                                                                         : ">`]";
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

/// A format's own id is kept, once.
std::string CallSplitter::usable_id(const std::string& wanted) {
  const bool usable =
      !wanted.empty() && wanted.size() <= 64 && std::find(ids_.begin(), ids_.end(), wanted) == ids_.end();
  ids_.push_back(usable ? wanted : fresh_id(id_prefix_));
  return ids_.back();
}

void CallSplitter::begin_call(ToolCall head) {
  open_.emplace();
  open_->head = std::move(head);
  open_->head.arguments.clear();
}

void CallSplitter::feed_call(std::string_view arguments, std::vector<ReplyPiece>& out) {
  if (!open_) return;
  std::string text = open_->json.feed(arguments);
  if (text.empty()) return;
  if (!open_->begun) {
    open_->begun = true;
    open_->index = calls_++;
    open_->head.id = usable_id(open_->head.id);
    blanks_.clear();
    after_call_ = true;
    ReplyPiece head;
    head.kind = ReplyPiece::Kind::call_open;
    head.index = open_->index;
    head.call = open_->head;
    out.push_back(std::move(head));
  }
  open_->head.arguments += text;
  if (!out.empty() && out.back().kind == ReplyPiece::Kind::arguments && out.back().index == open_->index) {
    out.back().text += text;
    return;
  }
  ReplyPiece piece;
  piece.kind = ReplyPiece::Kind::arguments;
  piece.index = open_->index;
  piece.text = std::move(text);
  out.push_back(std::move(piece));
}

bool CallSplitter::abandon_call(bool cut, std::vector<ReplyPiece>& out) {
  const bool begun = open_ && open_->begun;
  if (begun) {
    ToolCall call = open_->head;
    if (!cut) call.arguments += open_->json.closers();
    unparsed_ = unparsed_ || !cut;
    add_call(std::move(call), out);
  }
  open_.reset();
  return begun;
}

void CallSplitter::add_call(ToolCall call, std::vector<ReplyPiece>& out) {
  blanks_.clear();
  after_call_ = true;
  ReplyPiece piece;
  std::string rest = call.arguments;
  if (open_ && open_->begun) {
    call.id = open_->head.id;
    call.name = open_->head.name;
    piece.index = open_->index;
    const std::string& said = open_->head.arguments;
    if (call.arguments.starts_with(said)) {
      rest = call.arguments.substr(said.size());
    } else {
      // What was said cannot be taken back: it is closed, and the answer says so.
      unparsed_ = true;
      rest = open_->json.closers();
      call.arguments = said + rest;
    }
  } else {
    call.id = usable_id(call.id);
    piece.index = calls_++;
    piece.kind = ReplyPiece::Kind::call_open;
    piece.call = call;
    piece.call.arguments.clear();
    out.push_back(piece);
  }
  open_.reset();
  if (!rest.empty()) {
    piece.kind = ReplyPiece::Kind::arguments;
    piece.call = {};
    piece.text = std::move(rest);
    out.push_back(piece);
    piece.text.clear();
  }
  piece.kind = ReplyPiece::Kind::call;
  piece.call = std::move(call);
  out.push_back(std::move(piece));
}

/// The call that is being read, as far as it can be told: the same whatever pieces the text came in.
void CallSplitter::look_ahead(const CallFrame& frame, std::vector<ReplyPiece>& out) {
  if (!open_ && probing_) {
    CallProbe probe = probe_call(buffer_, resume_, frame, *tools_);
    if (probe.status == CallProbe::Status::none) probing_ = false;
    if (probe.status == CallProbe::Status::found) {
      probing_ = false;
      const auto before = std::string_view(buffer_).substr(0, probe.begun);
      const CallScan scan = frame.scan(before, frame, {*tools_, false, false});
      if (scan.status == CallScan::Status::need_more && scan.calls.size() == emitted_) {
        begin_call(std::move(probe.head));
        fed_ = probe.arguments;
      }
    }
  }
  if (!open_ || !open_->written) return;
  feed_call(std::string_view(buffer_).substr(fed_), out);
  fed_ = buffer_.size();
}

/// The same of formats whose arguments are not JSON: what the scan makes of them so far.
void CallSplitter::tell_open(const CallScan& scan, std::vector<ReplyPiece>& out) {
  growing_ = scan.growing;
  ends_ = scan.ends;
  waits_ = scan.waits;
  const ToolCall& call = scan.open;
  if (call.name.empty() || !tools_->knows(call.name) || (open_ && open_->written)) return;
  if (!open_) {
    if (call.arguments.size() < 2) return;
    begin_call(call);
    open_->written = false;
    fed_ = 0;
  }
  if (call.arguments.size() <= fed_) return;
  feed_call(std::string_view(call.arguments).substr(fed_), out);
  fed_ = call.arguments.size();
}

/// A text value that goes on, without another scan.
void CallSplitter::tell_more(std::vector<ReplyPiece>& out) {
  if (growing_ == std::string::npos || !open_ || open_->written) return;
  const auto value = std::string_view(buffer_).substr(growing_);
  const size_t told = told_of(value, ends_);
  if (told == 0) return;
  const std::string quoted = json_quoted(value.substr(0, told));
  feed_call(std::string_view(quoted).substr(1, quoted.size() - 2), out);
  fed_ += quoted.size() - 2;
  growing_ += told;
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
  look_ahead(frame, out);
  if (!last && scanned_ > 0 && !waits_ && !may_decide(frame, buffer_, scanned_)) {
    tell_more(out);
    scanned_ = buffer_.size();
    return false;
  }
  scanned_ = buffer_.size();
  CallScan scan = frame.scan(buffer_, frame, {*tools_, last, whole});
  while (emitted_ < scan.calls.size()) {
    add_call(std::move(scan.calls[emitted_++]), out);
    probing_ = true;
    // Later calls of the frame, as the text shows them up to here.
    if (emitted_ == scan.calls.size()) resume_ = scan.resume;
  }
  if (scan.status != CallScan::Status::done) {
    look_ahead(frame, out);
    tell_open(scan, out);
  }
  if (scan.status == CallScan::Status::need_more) return false;
  size_t used = scan.used;
  if (scan.status == CallScan::Status::rejected) {
    const bool cut = last && !whole;
    // What was told of a call is text as well, but not to be read as that call again.
    const size_t told = open_ && open_->begun && !open_->written ? scan.used : 0;
    if (abandon_call(cut, out) && cut) {
      used = buffer_.size();
    } else if (scan.calls.empty()) {
      // No call after all: its mark is text, and what follows is looked at again.
      used = std::max(frame.open.size(), told);
      const std::string text = buffer_.substr(0, used);
      if (!frame.head_only) unparsed_ = true;
      content(text, out);
    } else {
      used = std::max(scan.resume, told);
      unparsed_ = unparsed_ || !all_blank(std::string_view(buffer_).substr(scan.resume));
      content(std::string_view(buffer_).substr(scan.resume, used - scan.resume), out);
    }
  }
  abandon_call(false, out);
  buffer_.erase(0, used);
  frame_ = -1;
  emitted_ = 0;
  scanned_ = 0;
  resume_ = 0;
  probing_ = true;
  growing_ = std::string::npos;
  waits_ = false;
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
