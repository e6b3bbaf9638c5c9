#include "server/answer_form.h"

#include "api/error.h"
#include "api/json_node.h"

namespace mlxcel {
namespace {

Constraint::Kind kind_of(OutputForm::Kind kind) {
  switch (kind) {
    case OutputForm::Kind::json_schema:
      return Constraint::Kind::json_schema;
    case OutputForm::Kind::regex:
      return Constraint::Kind::regex;
    case OutputForm::Kind::gbnf:
      return Constraint::Kind::gbnf;
    case OutputForm::Kind::lark:
      return Constraint::Kind::lark;
    default:
      return Constraint::Kind::json_object;
  }
}

std::vector<ToolForm> tool_forms(const std::string& tools_json) {
  std::vector<ToolForm> out;
  for (const auto& tool : JsonNode::parse(tools_json).items()) {
    const auto function = tool.find("function");
    if (!function) continue;
    const auto parameters = function->find("parameters");
    out.push_back({function->string("name").value_or(""), parameters ? parameters->dump() : ""});
  }
  return out;
}

}  // namespace

GrammarUse form_grammar(const Engine& engine, const OutputForm& form) {
  GrammarUse out;
  if (form.kind == OutputForm::Kind::free) return out;
  Constraint wanted;
  wanted.kind = kind_of(form.kind);
  wanted.text = form.source;
  wanted.strict = form.strict;
  wanted.param = form.param;
  out.grammar = engine.compile(wanted);
  return out;
}

GrammarUse chat_grammar(const Engine& engine, const ChatSpec& spec, const ReplyFormat& format,
                        const std::string& thought_end, std::vector<Warning>& warnings) {
  const bool forced = spec.tool_choice == ToolChoice::required || spec.tool_choice == ToolChoice::named;
  if (forced && spec.form.kind != OutputForm::Kind::free) {
    fail_param(spec.form.param, "{}: a forced call leaves no room for a form of the answer", spec.form.param);
  }
  GrammarUse out;
  if (forced) {
    const CallWriting& w = format.writing;
    auto tools = tool_forms(spec.tools_json);
    const ToolFrame frame{w.before, w.between, w.after, w.separator};
    const bool many = spec.parallel_calls && w.several && spec.tool_choice == ToolChoice::required;
    try {
      out.grammar = engine.compile(tool_call_constraint(tools, frame, many, "tools"));
    } catch (const Error& error) {
      // Arguments that cannot be held to their schema exactly are still held to JSON.
      warnings.push_back({"tool_schema_relaxed", error.what()});
      for (auto& tool : tools) tool.parameters_json.clear();
      out.grammar = engine.compile(tool_call_constraint(tools, frame, many, "tools"));
    }
  } else {
    out = form_grammar(engine, spec.form);
  }
  if (out.grammar) out.after = thought_end;
  return out;
}

}  // namespace mlxcel
