// A forced tool call as a grammar: the wire format's frame, one of the tools' names, and that tool's
// arguments.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/grammar/grammar.h"

namespace mlxcel {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

Constraint tool_call_constraint(std::span<const ToolForm> tools, const ToolFrame& frame, bool many,
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
  std::string text = fmt::format(
      "start: call{}\n",
      many ? fmt::format(" ({}call)*", frame.separator.empty() ? "" : quoted(frame.separator) + " ") : "");
  text += fmt::format("call: {}\n", calls) + rules;
  return {.kind = Constraint::Kind::lark, .text = std::move(text), .param = param};
}

}  // namespace mlxcel
