#include "text/reply/reply_parser.h"

#include <algorithm>
#include <optional>

#include "text/reply/call_cursor.h"
#include "text/reply/call_splitter.h"
#include "text/reply/harmony.h"

namespace mlxcel {
namespace {

std::string_view without_trailing_blanks(std::string_view text) {
  while (!text.empty() && skip_blanks(text, text.size() - 1) == text.size()) text.remove_suffix(1);
  return text;
}

}  // namespace

struct ReplyParser::Impl {
  explicit Impl(ReplyOptions o)
      : options(std::move(o)),
        with_calls(options.tools && !options.tools->empty()),
        calls(!with_calls ? std::vector<CallFrame>() : options.format->frames, options.format->silent,
              options.tools ? options.tools : std::make_shared<const ToolTypes>(), options.call_prefix) {
    if (options.format->harmony) {
      harmony.emplace(options.prompt_tail, with_calls, options.thought, calls,
                      !options.format->frames.empty());
      return;
    }
    const auto tail = without_trailing_blanks(options.prompt_tail);
    for (const auto& marks : options.format->thoughts) {
      if (tail.ends_with(marks.open)) open = &marks;
      const size_t opened = options.continued.rfind(marks.open);
      const size_t closed = options.continued.rfind(marks.close);
      if (opened != std::string::npos && (closed == std::string::npos || closed < opened)) open = &marks;
    }
    fresh = open != nullptr;
  }

  const ReplyOptions options;
  const bool with_calls;
  CallSplitter calls;
  std::optional<HarmonySplitter> harmony;
  std::string buffer;
  std::string blanks;                  // of a thought, before its end perhaps
  const ThoughtMarks* open = nullptr;  // the thought being read
  bool fresh = false;                  // nothing of the thought yet
  bool after_thought = false;          // blanks after a thought are not content
  std::string lead;                    // blanks at the head of the answer: a thought may follow
  bool head = true;

  void to_content(std::string_view text, std::vector<ReplyPiece>& out) {
    if (text.empty()) return;
    if (with_calls || !options.format->silent.empty()) {
      calls.push(text, out);
    } else {
      append_text(out, ReplyPiece::Kind::content, text);
    }
  }

  void content(std::string_view text, std::vector<ReplyPiece>& out) {
    if (after_thought) text.remove_prefix(skip_blanks(text, 0));
    if (text.empty()) return;
    if (head && options.thought == ThoughtMode::split && skip_blanks(text, 0) == text.size()) {
      lead += text;
      return;
    }
    after_thought = head = false;
    to_content(lead, out);
    lead.clear();
    to_content(text, out);
  }

  void thought(std::string_view text, std::vector<ReplyPiece>& out) {
    if (options.thought == ThoughtMode::both) to_content(text, out);
    if (fresh) text.remove_prefix(skip_blanks(text, 0));
    if (text.empty()) return;
    fresh = false;
    const auto solid = without_trailing_blanks(text);
    if (!solid.empty()) {
      append_text(out, ReplyPiece::Kind::thought, blanks);
      blanks.clear();
      append_text(out, ReplyPiece::Kind::thought, solid);
    }
    blanks += text.substr(solid.size());
  }

  void begin(const ThoughtMarks& marks, std::vector<ReplyPiece>& out) {
    if (options.thought == ThoughtMode::both) to_content(marks.open, out);
    open = &marks;
    fresh = true;
    lead.clear();
  }

  void end(std::string_view mark, std::vector<ReplyPiece>& out) {
    if (options.thought == ThoughtMode::both) to_content(mark, out);
    open = nullptr;
    blanks.clear();
    after_thought = options.thought == ThoughtMode::split;
  }

  /// An answer that was cut inside a mark does not end with what there is of it.
  void drop_cut_mark() {
    if (open) {
      const size_t part = held_suffix(buffer, open->close);
      if (part > 1) buffer.resize(buffer.size() - part);
    } else if (head) {
      const size_t first = skip_blanks(buffer, 0);
      const auto text = std::string_view(buffer).substr(first);
      const auto& all = options.format->thoughts;
      const bool cut = text.size() > 1 && std::any_of(all.begin(), all.end(), [&](const ThoughtMarks& marks) {
                         return marks.open.starts_with(text);
                       });
      if (cut) buffer.clear();
    }
  }

  void advance(bool last, std::vector<ReplyPiece>& out) {
    for (;;) {
      size_t at = std::string::npos;
      size_t length = 0, held = 0;
      const ThoughtMarks* found = nullptr;
      auto consider = [&](const std::string& mark, const ThoughtMarks* marks, bool taken) {
        const size_t here = buffer.find(mark);
        if (here < at) {
          at = here;
          length = taken ? mark.size() : 0;
          found = marks;
        }
        if (!last) held = std::max(held, held_suffix(buffer, mark));
      };
      if (open) {
        consider(open->close, nullptr, true);
        if (with_calls) {
          for (const auto& frame : options.format->frames) {
            if (frame.ends_thought) consider(frame.open, nullptr, false);
          }
        }
      } else {
        for (const auto& marks : options.format->thoughts) {
          consider(marks.open, &marks, true);
          consider(marks.close, nullptr, true);  // a stray end is nobody's text
        }
      }
      if (at == std::string::npos) {
        const auto text = std::string_view(buffer).substr(0, buffer.size() - held);
        open ? thought(text, out) : content(text, out);
        buffer.erase(0, text.size());
        return;
      }
      const auto text = std::string_view(buffer).substr(0, at);
      open ? thought(text, out) : content(text, out);
      const std::string mark = buffer.substr(at, length);
      buffer.erase(0, at + length);
      if (open) {
        end(mark, out);
      } else if (found) {
        begin(*found, out);
      } else {
        after_thought = after_thought || head;
        if (options.thought == ThoughtMode::both) to_content(mark, out);
      }
    }
  }
};

ReplyParser::ReplyParser(ReplyOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
ReplyParser::~ReplyParser() = default;
ReplyParser::ReplyParser(ReplyParser&&) noexcept = default;

std::vector<ReplyPiece> ReplyParser::push(std::string_view text) {
  std::vector<ReplyPiece> out;
  if (impl_->harmony) {
    impl_->harmony->push(text, out);
  } else if (impl_->options.thought == ThoughtMode::keep) {
    impl_->to_content(text, out);
  } else {
    impl_->buffer += text;
    impl_->advance(false, out);
  }
  return out;
}

std::vector<ReplyPiece> ReplyParser::finish(bool whole) {
  std::vector<ReplyPiece> out;
  if (impl_->harmony) {
    impl_->harmony->finish(whole, out);
    return out;
  }
  if (!whole) impl_->drop_cut_mark();
  impl_->advance(true, out);
  if (impl_->open) append_text(out, ReplyPiece::Kind::thought, impl_->blanks);
  if (!impl_->open && !impl_->lead.empty()) impl_->to_content(impl_->lead, out);
  impl_->calls.finish(whole, out);
  return out;
}

bool ReplyParser::in_thought() const {
  return impl_->harmony ? impl_->harmony->in_thought() : impl_->open != nullptr;
}
std::string ReplyParser::close_mark() const { return impl_->open ? impl_->open->close : std::string(); }
std::string ReplyParser::thought_end() const {
  if (impl_->harmony) return impl_->harmony->thought_end();
  return impl_->open ? "\n" + impl_->open->close + "\n\n" : std::string();
}
int ReplyParser::calls() const { return impl_->calls.calls(); }
bool ReplyParser::unparsed() const {
  return impl_->calls.unparsed() || (impl_->harmony && impl_->harmony->unparsed());
}

}  // namespace mlxcel
