// Tools that may be called together with a form of the answer: what comes is a call, or text in that form.
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

}  // namespace mlxcel
