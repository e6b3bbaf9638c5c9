#include "server/chat_job.h"

#include <algorithm>

#include "api/json_node.h"
#include "api/tools.h"
#include "server/answer_form.h"

namespace mlxcel {
namespace {

constexpr size_t kTail = 512;  // bytes of the prompt in which an open thought is looked for

/// One parser a choice between the text and the API's writer.
class ReplyAdapter final : public AnswerWriter {
 public:
  ReplyAdapter(std::unique_ptr<ReplyWriter> writer, std::shared_ptr<const Tokenizer> tokenizer,
               Metrics& metrics, const ChatSpec& spec, const ReplyOptions& options, int prompt_tokens,
               std::string budget_message, std::shared_ptr<std::atomic<bool>> end_thought,
               std::vector<Warning> warnings, ReasoningEcho* echo, std::string key)
      : writer_(std::move(writer)),
        tokenizer_(std::move(tokenizer)),
        metrics_(metrics),
        with_scores_(spec.logprobs >= 0),
        parallel_(spec.parallel_calls),
        prompt_tokens_(prompt_tokens),
        budget_(spec.thought_budget),
        budget_message_(std::move(budget_message)),
        end_thought_(std::move(end_thought)),
        warnings_(std::move(warnings)),
        echo_(echo && !echo->off() && options.thought == ThoughtMode::split ? echo : nullptr),
        key_(std::move(key)) {
    for (int i = 0; i < spec.n; ++i) choices_.emplace_back(options);
  }

  void begin() override { writer_->begin(prompt_tokens_); }
  void progress(size_t row, const openai::PromptProgress& progress) override {
    writer_->progress(row, progress);
  }
  void scored(size_t, const std::vector<Draw>&) override {}
  void timed(size_t row, const openai::TimingFigures& figures) override { writer_->timed(row, figures); }

  void text(size_t row, const std::string& piece, const std::vector<Draw>& draws) override {
    Choice& choice = choices_[row];
    const bool thinking = choice.parser.in_thought();
    if (!draws.empty()) writer_->tokens(row, draws);
    if (with_scores_ && !draws.empty()) writer_->scores(row, token_scores(*tokenizer_, draws));
    const bool thought = give(row, choice.parser.push(piece));
    if (thinking || thought) choice.reasoning_tokens += static_cast<int>(draws.size());
  }

  bool satisfied(size_t row) const override {
    return (!parallel_ && choices_[row].given > 0) || writer_->stopped(row);
  }

  std::string forced(size_t row) override {
    Choice& choice = choices_[row];
    if (!choice.parser.in_thought()) return "";
    const bool asked = end_thought_ && *end_thought_;
    if (!asked && (!budget_ || choice.reasoning_tokens < *budget_)) return "";
    return budget_message_ + choice.parser.thought_end();
  }

  void end(size_t row, const RowFigures& figures) override {
    Choice& choice = choices_[row];
    const bool cut = figures.finish == "length";
    give(row, choice.parser.finish(!cut));
    ReplyEnd end;
    end.figures = figures;
    end.calls = choice.given;
    end.finish = !cut && end.calls > 0 ? "tool_calls" : figures.finish;
    end.reasoning_tokens = choice.reasoning_tokens;
    if (echo_ && !cut) echo_->keep(key_, choice.said, choice.thought);
    if (choice.given > 0) metrics_.tool_calls.add({"called"}, static_cast<uint64_t>(choice.given));
    if (choice.parser.unparsed()) {
      metrics_.tool_calls.add({"unparsed"});
      warnings_.push_back(
          {"tool_call_unparsed", "a tool call could not be read and was left in the content"});
    }
    writer_->end(row, end, warnings_);
  }

  void finish(const openai::Usage& usage, const openai::TimingFigures& totals) override {
    openai::Usage full = usage;
    for (const auto& choice : choices_) full.reasoning_tokens += choice.reasoning_tokens;
    writer_->finish(full, totals);
  }

  std::string error_event(const ApiError& error) override { return writer_->error_event(error); }

 private:
  struct Choice {
    explicit Choice(const ReplyOptions& options) : parser(options) {}
    ReplyParser parser;
    int given = 0, reasoning_tokens = 0;
    std::string said, thought;  // kept where thoughts are put back into later histories
  };

  /// True when there was thought among it.
  bool give(size_t row, const std::vector<ReplyPiece>& pieces) {
    bool thought = false;
    for (const auto& piece : pieces) {
      if (!parallel_ && choices_[row].given > 0) break;  // the turn has ended with its one call
      switch (piece.kind) {
        case ReplyPiece::Kind::content:
          if (echo_) choices_[row].said += piece.text;
          writer_->content(row, piece.text);
          break;
        case ReplyPiece::Kind::thought:
          thought = true;
          if (echo_) choices_[row].thought += piece.text;
          writer_->thought(row, piece.text);
          break;
        case ReplyPiece::Kind::call_open:
          writer_->call_open(row, piece.index, piece.call);
          break;
        case ReplyPiece::Kind::arguments:
          writer_->call_arguments(row, piece.index, piece.text);
          break;
        case ReplyPiece::Kind::call:
          ++choices_[row].given;
          writer_->call(row, piece.index, piece.call);
          break;
      }
    }
    return thought;
  }

  std::unique_ptr<ReplyWriter> writer_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  Metrics& metrics_;
  const bool with_scores_, parallel_;
  const int prompt_tokens_;
  const std::optional<int> budget_;  // of thinking tokens
  const std::string budget_message_;
  const std::shared_ptr<std::atomic<bool>> end_thought_;
  std::vector<Warning> warnings_;
  ReasoningEcho* const echo_;  // the service's
  const std::string key_;
  std::vector<Choice> choices_;
};

ThoughtMode thought_mode(const std::string& word) {
  if (word == "none") return ThoughtMode::keep;
  return word == "deepseek-legacy" ? ThoughtMode::both : ThoughtMode::split;
}

/// A turn of nothing but calls has no content: some templates ask for that, others add it to a text.
Prompt render_calls(const Tokenizer& tokenizer, const ChatTemplate* chat_template, TemplateInput input,
                    const PromptBound& bound) {
  try {
    return prepare_chat(tokenizer, chat_template, input, bound);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_request) throw;
    input.messages_json = with_text_contents(input.messages_json);
    if (input.messages_json.empty()) throw;
    try {
      return prepare_chat(tokenizer, chat_template, input, bound);
    } catch (const Error&) {
    }
    throw;  // the first complaint is about what was sent
  }
}

/// Answers of the assistant that come back without the thoughts they were generated with get them again, so
/// that a template that shows them writes what the kept prefix holds. The turn to continue is left alone.
std::string with_thoughts(const std::string& messages_json, ReasoningEcho& echo, const std::string& key,
                          bool continues) {
  const auto root = JsonNode::parse(messages_json);
  const auto messages = root.items();
  bool any = false;
  JsonWriter out;
  out.begin_array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const JsonNode& message = messages[i];
    std::string thought;
    const bool open = continues && i + 1 == messages.size();
    const auto content = message.find("content");
    if (!open && content && content->kind() == JsonKind::string && message.string("role") == "assistant" &&
        !message.has("reasoning_content"))
      thought = echo.find(key, content->string());
    if (thought.empty()) {
      out.raw(message.dump());
      continue;
    }
    any = true;
    out.begin_object();
    for (const auto& [name, value] : message.members()) out.key(name).raw(value.dump());
    out.field("reasoning_content", thought).end_object();
  }
  out.end_array();
  return any ? out.take() : messages_json;
}

/// Some templates take a system turn only at the head, or leave a later one out: then it goes into a user
/// turn.
Prompt render(const Tokenizer& tokenizer, const ChatTemplate* chat_template, TemplateInput input,
              const PromptBound& bound) {
  const auto late = late_system_texts(input.messages_json);
  if (late.empty()) return render_calls(tokenizer, chat_template, input, bound);
  try {
    Prompt prompt = render_calls(tokenizer, chat_template, input, bound);
    const bool kept = std::all_of(late.begin(), late.end(), [&](const auto& text) {
      return prompt.text.find(text) != std::string::npos;
    });
    if (kept) return prompt;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_request) throw;
  }
  input.messages_json = with_folded_system(input.messages_json);
  return render_calls(tokenizer, chat_template, input, bound);
}

/// The mark that ends a thought which the prompt has opened.
std::string open_thought(const ReplyOptions& options) {
  if (options.format->harmony) return "";
  ReplyParser parser(options);
  return parser.in_thought() ? parser.close_mark() : "";
}

}  // namespace

ChatPrompt prepare_chat_prompt(Service& service, const Engine& engine, const ChatSpec& spec,
                               const std::string& key, int window) {
  ChatPrompt out;
  const ServiceOptions& options = service.options();
  const auto& chat_template = service.chat_template();
  out.format = reply_format(chat_template ? chat_template->source() : std::string());
  out.tools = std::make_shared<const ToolTypes>(spec.tools_json);
  out.warnings = spec.warnings;

  TemplateInput input;
  input.messages_json = spec.messages_json;
  input.tools_json = tools_as_shown(spec.tools_json);
  if (!out.format->native_tools) {
    input.messages_json = with_tool_instruction(spec.messages_json, input.tools_json);
    input.tools_json.clear();
  }
  input.kwargs_json = openai::merge_objects(service.live()->chat_template_kwargs, spec.template_kwargs_json);
  input.continue_final_message = spec.continue_final_message.value_or(
      spec.last_is_assistant && options.prefill_assistant && !spec.add_generation_prompt.value_or(false));
  input.add_generation_prompt = spec.add_generation_prompt.value_or(true) && !input.continue_final_message;
  if (input.continue_final_message) out.continued = spec.last_content;
  if (service.thoughts().bytes() > 0)
    input.messages_json =
        with_thoughts(input.messages_json, service.thoughts(), key, input.continue_final_message);
  const PromptBound bound{window, spec.messages_param};
  if (!options.jinja) {
    if (!spec.tools_json.empty()) fail_param("tools", "tools: the server was started with --no-jinja");
    out.prompt = prepare_raw(*engine.tokenizer(), plain_chat_text(input), bound);
    out.format = reply_format("");
  } else {
    out.prompt = render(*engine.tokenizer(), chat_template.get(), std::move(input), bound);
  }
  const auto& text = out.prompt.text;
  out.tail = text.substr(text.size() > kTail ? text.size() - kTail : 0);
  if (out.prompt.double_bos) {
    out.warnings.push_back({"double_bos", "the prompt began with two BOS; one was dropped"});
  }
  return out;
}

void start_chat(const Router& router, const std::shared_ptr<Engine>& engine,
                const std::shared_ptr<Exchange>& exchange, const ChatSpec& asked, ChatPrompt prompt,
                std::unique_ptr<ReplyWriter> writer, const ChatOptions& options) {
  Service& service = router.service();
  ChatSpec spec = asked;
  const auto live = service.live();
  if (spec.tool_choice != ToolChoice::required && spec.tool_choice != ToolChoice::named)
    spec.form = form_or_default(service.options(), asked.form);
  if (!spec.thought_budget && live->reasoning_budget >= 0) spec.thought_budget = live->reasoning_budget;
  Request row;
  row.prompt = std::move(prompt.prompt.tokens);
  row.sampling = service.sampling(spec.sampling);
  row.sampling.logprobs = spec.logprobs;
  row.max_tokens = spec.max_tokens.value_or(live->predict);
  row.ignore_eos = spec.sampling.ignore_eos.value_or(service.options().sampling.ignore_eos);
  row.route = exchange->request().route;
  const int window = engine->context();
  fit_window(row, options.context_cap > 0 ? std::min(options.context_cap, window) : window,
             spec.messages_param);

  ReplyOptions reply;
  reply.format = prompt.format;
  reply.tools = prompt.tools;
  const std::string& wanted =
      spec.reasoning_format.empty() ? service.options().reasoning_format : spec.reasoning_format;
  reply.thought = thought_mode(wanted);
  reply.prompt_tail = prompt.tail;
  reply.continued = prompt.continued;
  reply.call_prefix = options.call_prefix;
  if (service.options().skip_chat_parsing) {
    reply.thought = ThoughtMode::keep;
    reply.tools.reset();
  }

  const auto before = Clock::now();
  row.grammar = chat_grammar(*engine, spec, *prompt.format,
                             reply.thought == ThoughtMode::keep ? "" : open_thought(reply), prompt.warnings);
  if (row.grammar.grammar) service.metrics().grammar_seconds.observe(seconds_between(before, Clock::now()));
  wishes_of(service, exchange->request(), spec.sampling, row);

  Generation::Plan plan;
  plan.prompt_tokens = static_cast<int>(row.prompt.size());
  plan.stops = service.stops(spec.sampling);
  if (!service.options().skip_chat_parsing) plan.marks = prompt.format->marks;
  plan.timed = options.timed;
  plan.progress = options.progress;
  plan.may_force = spec.thought_budget.has_value() || options.end_thought != nullptr;
  plan.writer = std::make_unique<ReplyAdapter>(
      std::move(writer), engine->tokenizer(), service.metrics(), spec, reply, plan.prompt_tokens,
      service.options().reasoning_budget_message, options.end_thought, std::move(prompt.warnings),
      &service.thoughts(), exchange->request().key_label);
  if (spec.n > 1) row.group = next_group();
  for (int i = 0; i < spec.n; ++i) {
    plan.rows.push_back(row);
    plan.rows.back().choice = i;
  }
  Generation::start(router, engine, exchange, std::move(plan));
}

}  // namespace mlxcel
