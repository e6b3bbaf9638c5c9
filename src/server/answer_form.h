// What an answer must look like, as the engine's grammar: a request's form, or a call that is forced.
// Thread: any; the first grammar of a model takes some hundred milliseconds. Failure: invalid_request naming
// the field.
#pragma once

#include "api/chat_spec.h"
#include "engine/engine.h"
#include "server/options.h"
#include "text/reply/reply_format.h"

namespace mlxcel {

/// What the server's flags want of an answer whose request does not say; its param is the flag.
OutputForm default_form(const ServiceOptions& options);
/// The request's form, or the default one.
OutputForm form_or_default(const ServiceOptions& options, const OutputForm& asked);
/// No grammar where the form is free.
GrammarUse form_grammar(const Engine& engine, const OutputForm& form);
/// The same for a chat: `in_thought` is the mark that ends the thought the prompt opened, empty for none.
GrammarUse chat_grammar(const Engine& engine, const ChatSpec& spec, const ReplyFormat& format,
                        const std::string& thought_end, std::vector<Warning>& warnings);

}  // namespace mlxcel
