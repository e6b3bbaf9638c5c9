// A forced tool call as a grammar: the wire format's frame, one of the tools' names, and that tool's
// arguments.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/grammar/call_or_form.h"
#include "text/grammar/grammar.h"

namespace mlxcel {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

/// Lark rules of which `calls` is one call or, `many`, a row of them.
std::string call_rules(std::span<const ToolForm> tools, const ToolFrame& frame, bool many,
                       const std::string& param) {
  if (tools.empty()) fail_param(param, "{}: a call is asked for, but there are no tools", param);
  std::string calls, rules;
  for (size_t i = 0; i < tools.size(); ++i) {
    const ToolForm& tool = tools[i];
    std::string schema = R"({"type":"object"})";
    if (!tool.parameters_json.empty())
      schema =
          checked_schema(tool.parameters_json, false, fmt::format("{}[{}].function.parameters", param, i));
    calls += fmt::format("{}call{}", i == 0 ? "" : " | ", i);
    rules += fmt::format("call{}: {} args{}{}\nargs{}: %json {}\n", i,
                         quoted(frame.before + tool.name + frame.between), i,
                         frame.after.empty() ? "" : " " + quoted(frame.after), i, schema);
  }
  const std::string more =
      many ? fmt::format(" ({}call)*", frame.separator.empty() ? "" : quoted(frame.separator) + " ") : "";
  return fmt::format("calls: call{}\ncall: {}\n{}", more, calls, rules);
}

/// The right side of a Lark rule for text in this form.
std::string form_rule(const Constraint& form) {
  switch (form.kind) {
    case Constraint::Kind::json_object:
      return R"(%json {"type":"object"})";
    case Constraint::Kind::json_schema:
      return "%json " + checked_schema(form.text, form.strict, form.param);
    case Constraint::Kind::regex: {
      std::string pattern;
      for (size_t i = 0; i < form.text.size(); ++i) {
        const char c = form.text[i];
        if (c == '\n') {
          pattern += "\\n";
        } else {
          if (c == '/') pattern += '\\';
          pattern += c;
          if (c == '\\' && i + 1 < form.text.size()) pattern += form.text[++i];
        }
      }
      return "/" + pattern + "/";
    }
    case Constraint::Kind::gbnf:
    case Constraint::Kind::lark:
      break;
  }
  fail_param(form.param,
             "{}: a grammar cannot stand beside tools that may be called; send tool_choice \"none\"",
             form.param);
}

}  // namespace

Constraint tool_call_constraint(std::span<const ToolForm> tools, const ToolFrame& frame, bool many,
                                const std::string& param) {
  return {.kind = Constraint::Kind::lark,
          .text = "start: calls\n" + call_rules(tools, frame, many, param),
          .param = param};
}

Constraint call_or_text_constraint(std::span<const ToolForm> tools, const ToolFrame& frame, bool many,
                                   const std::string& param) {
  // Nor does it begin as a mark does, which may open a call as well.
  const std::string text =
      fmt::format(R"(/[ \t\r\n]*([^\{} \t\r\n<](.|\n)*|<([^|](.|\n)*)?)/)", frame.before.front());
  return {.kind = Constraint::Kind::lark,
          .text = "start: calls | text?\ntext: " + text + "\n" + call_rules(tools, frame, many, param),
          .param = param};
}

Constraint call_or_form_constraint(std::span<const ToolForm> tools, const ToolFrame& frame, bool many,
                                   const Constraint& form, const std::string& param) {
  const std::string rule = form_rule(form);
  return {.kind = Constraint::Kind::lark,
          .text = "start: calls | form\nform: " + rule + "\n" + call_rules(tools, frame, many, param),
          .param = param};
}

}  // namespace mlxcel
