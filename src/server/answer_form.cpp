#include "server/answer_form.h"

#include <algorithm>

#include "api/error.h"
#include "api/json_node.h"
#include "text/grammar/call_or_form.h"

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

struct Tools {
  std::vector<ToolForm> forms;
  std::vector<bool> strict;
};

Tools tools_of(const std::string& tools_json) {
  Tools out;
  if (tools_json.empty()) return out;
  for (const auto& tool : JsonNode::parse(tools_json).items()) {
    const auto function = tool.find("function");
    if (!function) continue;
    const auto parameters = function->find("parameters");
    out.forms.push_back({function->string("name").value_or(""), parameters ? parameters->dump() : ""});
    out.strict.push_back(function->boolean("strict").value_or(false));
  }
  return out;
}

Constraint constraint_of(const OutputForm& form) {
  Constraint out;
  out.kind = kind_of(form.kind);
  out.text = form.source;
  out.strict = form.strict;
  out.param = form.param;
  return out;
}

/// A strict tool's schema must be one that can be enforced; the error names its place.
void check_strict(const Engine& engine, const Tools& tools) {
  for (size_t i = 0; i < tools.forms.size(); ++i) {
    if (!tools.strict[i] || tools.forms[i].parameters_json.empty()) continue;
    Constraint schema;
    schema.kind = Constraint::Kind::json_schema;
    schema.text = tools.forms[i].parameters_json;
    schema.param = fmt::format("tools[{}].function.parameters", i);
    engine.compile(schema);
  }
}

/// The grammar that `make` gives for the tools. Arguments that cannot be held to their schema exactly are
/// still held to JSON, with a warning; those of a strict tool must be.
template <class Make>
std::shared_ptr<const Grammar> with_tools(const Engine& engine, Tools tools, std::vector<Warning>& warnings,
                                          const Make& make) {
  try {
    return engine.compile(make(tools.forms));
  } catch (const Error& error) {
    check_strict(engine, tools);
    for (size_t i = 0; i < tools.forms.size(); ++i)
      if (!tools.strict[i]) tools.forms[i].parameters_json.clear();
    auto out = engine.compile(make(tools.forms));
    warnings.push_back({"tool_schema_relaxed", error.what()});
    return out;
  }
}

ToolFrame frame_of(const CallWriting& w) { return {w.before, w.between, w.after, w.separator}; }

/// An answer is free, but a call in it is held to its schema.
GrammarUse held_once_begun(const Engine& engine, const Tools& tools, const CallWriting& w, bool several,
                           std::vector<Warning>& warnings) {
  GrammarUse out;
  if (w.opening.empty() && !w.at_head) {
    warnings.push_back({"tool_schema_relaxed",
                        "tools: calls in this model's own wire format are held to no schema unless "
                        "tool_choice asks for one"});
    return out;
  }
  out.grammar = with_tools(engine, tools, warnings, [&](const auto& forms) {
    return w.at_head ? call_or_text_constraint(forms, frame_of(w), several, "tools")
                     : tool_call_constraint(forms, frame_of(w), several, "tools");
  });
  if (!w.at_head) out.triggers.push_back({.text = w.opening});
  return out;
}

}  // namespace

OutputForm default_form(const ServiceOptions& options) {
  if (!options.grammar.empty()) return {OutputForm::Kind::gbnf, options.grammar, "--grammar", false};
  if (!options.json_schema.empty())
    return {OutputForm::Kind::json_schema, options.json_schema, "--json-schema", false};
  return {};
}

OutputForm form_or_default(const ServiceOptions& options, const OutputForm& asked) {
  const bool said = asked.kind != OutputForm::Kind::free || !asked.param.empty();
  return said ? asked : default_form(options);
}

GrammarUse form_grammar(const Engine& engine, const OutputForm& form) {
  GrammarUse out;
  if (form.kind != OutputForm::Kind::free) out.grammar = engine.compile(constraint_of(form));
  return out;
}

GrammarUse chat_grammar(const Engine& engine, const ChatSpec& spec, const ReplyFormat& format,
                        const std::string& thought_end, std::vector<Warning>& warnings) {
  const bool forced = spec.tool_choice == ToolChoice::required || spec.tool_choice == ToolChoice::named;
  if (forced && spec.form.kind != OutputForm::Kind::free) {
    fail_param(spec.form.param, "{}: a forced call leaves no room for a form of the answer", spec.form.param);
  }
  GrammarUse out;
  const CallWriting& w = format.writing;
  const ToolFrame frame = frame_of(w);
  const bool several = spec.parallel_calls && w.several;
  if (forced) {
    const bool many = several && spec.tool_choice == ToolChoice::required;
    out.grammar = with_tools(engine, tools_of(spec.tools_json), warnings, [&](const auto& tools) {
      return tool_call_constraint(tools, frame, many, "tools");
    });
  } else if (spec.form.kind != OutputForm::Kind::free && !spec.tools_json.empty() &&
             spec.tool_choice == ToolChoice::automatic) {
    const Constraint form = constraint_of(spec.form);
    out.grammar = with_tools(engine, tools_of(spec.tools_json), warnings, [&](const auto& tools) {
      return call_or_form_constraint(tools, frame, several, form, "tools");
    });
  } else {
    out = form_grammar(engine, spec.form);
    const Tools tools = tools_of(spec.tools_json);
    check_strict(engine, tools);
    if (spec.tool_choice == ToolChoice::automatic &&
        std::find(tools.strict.begin(), tools.strict.end(), true) != tools.strict.end())
      out = held_once_begun(engine, tools, w, several, warnings);
  }
  if (out.grammar) out.after = thought_end;
  return out;
}

}  // namespace mlxcel
