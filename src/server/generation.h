// The rows of one HTTP request, from submission to the last token: events come from the model thread, text
// goes to a writer that knows the wire format. Owner: the engine's sinks and posted events keep it alive.
// Thread: the exchange's executor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/error.h"
#include "api/openai/answer.h"
#include "base/clock.h"
#include "engine/generation.h"
#include "server/http.h"
#include "server/router.h"

namespace mlxcel {

/// What a row came to.
struct RowFigures {
  openai::TimingFigures timings;
  std::string finish;       // stop, length
  std::string stop_string;  // which one ended it
  int prompt_tokens = 0;
  int slot = 0;
  uint32_t seed = 0;
  bool truncated = false;  // the window was full
};

/// Prints one wire format. Called on the exchange's executor, in order; a row's end() comes once.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  /// Every row has its place: a stream opens here.
  virtual void begin() = 0;
  /// How far the row's prompt is, where the plan asks for it.
  virtual void progress(size_t, const openai::PromptProgress&) {}
  virtual void scored(size_t row, const std::vector<Draw>& prompt_tokens) = 0;
  /// The figures so far, before a row's text(), where the plan asks for them.
  virtual void timed(size_t, const openai::TimingFigures&) {}
  virtual void text(size_t row, const std::string& piece, const std::vector<Draw>& draws) = 0;
  /// The row has its slot; comes before its first text.
  virtual void placed(size_t, int) {}
  virtual void end(size_t row, const RowFigures& figures) = 0;
  /// True when a row need not go on; asked after its text().
  virtual bool satisfied(size_t) const { return false; }
  /// Text that the model must go on from, as if it had written it (the end of a thought); asked after text().
  virtual std::string forced(size_t) { return ""; }
  /// The bytes that tell of an error inside an open stream; empty: the API's usual ones.
  virtual std::string error_event(const ApiError&) { return ""; }
  /// After the last row's end.
  virtual void finish(const openai::Usage& usage, const openai::TimingFigures& totals) = 0;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Plan {
    std::vector<Request> rows;
    int prompt_tokens = 0;  // of all prompts, each counted once
    std::vector<std::string> stops;
    bool may_force = false;          // keep what forced() needs
    bool timed = false;              // figures with every piece of text
    bool progress = false;           // how far prompts are
    std::vector<std::string> marks;  // special tokens that appear in the text all the same
    std::unique_ptr<AnswerWriter> writer;
  };
  /// Submits every row or none: a throw leaves nothing behind.
  static void start(const Router& router, std::shared_ptr<Engine> engine, std::shared_ptr<Exchange> exchange,
                    Plan plan);

 private:
  struct Row;
  Generation(const Router& router, std::shared_ptr<Engine> engine, std::shared_ptr<Exchange> exchange,
             Plan plan);
  void submit();
  void submit_row(Engine& engine, size_t row, Request request);
  void redirect(size_t row, const std::string& text);
  void on_event(size_t row, int epoch, Event event, TimePoint at);
  void on_text(size_t row, TextEvent event);
  void on_progress(size_t row, const Progress& progress);
  void take_slot(size_t row, const Timings& timings);
  void end_row(size_t row, TextEnd& end);
  void abort(const std::string& reason);
  void fail_all(const ApiError& error);
  void cancel_rows();
  void leave_slot(size_t row);
  void conclude(const std::string& finish, int status);

  const Router& router_;
  Service& service_;
  std::shared_ptr<Engine> engine_;
  std::string draft_kind_;
  std::shared_ptr<Exchange> exchange_;
  Plan plan_;
  std::vector<Row> rows_;
  TimePoint started_;
  size_t open_rows_ = 0;
  bool over_ = false;

 public:
  ~Generation();
};

/// What headers and fields say about caching, order and loops.
void wishes_of(const Service& service, const HttpRequest& http, const openai::SamplingFields& fields,
               Request& row);
/// A number for choices that share a prompt.
uint64_t next_group();

/// 400 where the prompt does not fit the window; clamps the cap to the room that is left.
void fit_window(Request& request, int context, const std::string& param);

/// The bytes behind the tokens, as the wire formats want them.
std::vector<openai::TokenScore> token_scores(const Tokenizer& tokenizer, const std::vector<Draw>& draws);

}  // namespace mlxcel
