// POST /v1/responses: the request as a chat spec, the response object and its events as text.
// Thread: any. Failure: invalid_request naming the field, or a Refusal.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat_spec.h"
#include "api/openai/answer.h"
#include "text/reply/tool_types.h"

namespace mlxcel::openai {

struct ResponseRequest : ChatSpec {
  std::vector<std::string> turns;  // of `input`, each a chat message as JSON
  std::string instructions;
  std::string model;
  std::string previous_response_id, conversation_id;
  bool new_conversation = false;
  bool store = true, stream = false, truncate = false, with_logprobs = false;
  bool timings_per_token = false;                           // of a stream
  std::vector<std::string> custom_tools;                    // answered as custom_tool_call
  std::vector<std::pair<std::string, std::string>> echoed;  // fields of the response object, JSON
};
/// An output item that was kept, as JSON, by its id; nothing where there is none.
using ItemLookup = std::function<std::optional<std::string>(const std::string& id)>;
ResponseRequest parse_response(std::string_view body, const Bounds& bounds, bool counting,
                               const ItemLookup& kept = nullptr);
/// The whole conversation as the template sees it: instructions, what came before, this input. Returns the
/// array.
std::string conversation_json(const std::string& instructions, const std::vector<std::string>& before,
                              const std::vector<std::string>& turns);
/// A turn is dropped with everything up to the next user turn; false when only one user turn is left.
bool drop_oldest(std::vector<std::string>& turns);

struct OutputItem {
  enum class Kind { reasoning, message, function_call, custom_tool_call };
  Kind kind = Kind::message;
  std::string id;    // rs_, msg_, fc_, ctc_
  std::string text;  // of reasoning and message
  ToolCall call;
  std::string input;  // custom: the one string
  std::vector<TokenScore> scores;
  bool done = false;
};

struct ResponseObject {
  std::string id, model, status = "in_progress", incomplete_reason;
  int64_t created = 0, completed = 0;
  std::string error_code, error_message;
  std::vector<OutputItem> output;
  bool with_usage = false, with_logprobs = false;
  Usage usage;
  std::string conversation_id;
  std::string warnings_json;
  std::vector<std::pair<std::string, std::string>> echoed;
};
std::string print_response(const ResponseObject& response);
/// The assistant turn that this output is, as a chat message.
std::string output_turn(const ResponseObject& response);

/// Events of a stream, numbered in order. Figures and progress are llama-server's additions, beside what
/// OpenAI's events have.
class ResponseEvents {
 public:
  std::string whole(const char* type, const ResponseObject& response, const TimingFigures* timings = nullptr);
  std::string in_progress(const ResponseObject& response, const PromptProgress& progress);
  std::string item_added(size_t index, const OutputItem& item);
  std::string item_done(size_t index, const OutputItem& item);
  std::string part_added(size_t index, const OutputItem& item);
  std::string part_done(size_t index, const OutputItem& item);
  /// `type` such as response.output_text.delta; `key` delta, text, arguments or input.
  std::string piece(const char* type, const char* key, size_t index, const OutputItem& item,
                    const std::string& text, bool with_content_index,
                    const std::vector<TokenScore>* scores = nullptr, const TimingFigures* timings = nullptr);
  std::string error(const std::string& code, const std::string& message);

 private:
  std::string end(const char* type, JsonWriter& data);
  JsonWriter begin(const char* type);
  int sequence_ = 0;
};

}  // namespace mlxcel::openai
