// Tools that may be called: what comes is a call, or text, in a form where one is asked for.
// Thread: any. Failure: invalid_request naming the form's param for a form that cannot stand beside calls.
#pragma once

#include <span>
#include <string>

#include "text/grammar/grammar.h"

namespace mlxcel {

/// A grammar of calls as tool_call_constraint() makes it, or of `form`: JSON and patterns can be combined so,
/// whole grammars cannot.
Constraint call_or_form_constraint(std::span<const ToolForm> tools, const ToolFrame& frame, bool many,
                                   const Constraint& form, const std::string& param);

/// A grammar of calls, or of text that begins otherwise than they do: for wire formats in which the answer's
/// first character tells a call.
Constraint call_or_text_constraint(std::span<const ToolForm> tools, const ToolFrame& frame, bool many,
                                   const std::string& param);

}  // namespace mlxcel
