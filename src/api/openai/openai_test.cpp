// OpenAI's shapes: what is read, what is refused by name, what is printed.
#include <gtest/gtest.h>

#include "api/error.h"
#include "api/openai/chat.h"
#include "api/openai/completion.h"
#include "api/openai/embedding.h"
#include "api/openai/models.h"

namespace mlxcel::openai {
namespace {

const Bounds kBounds{.vocab_size = 100, .max_choices = 8};

std::string chat_with(const std::string& fields) {
  return R"({"messages": [{"role": "user", "content": "hi"}])" + (fields.empty() ? "" : ", " + fields) + "}";
}
std::string completion_with(const std::string& fields) {
  return R"({"prompt": "hi")" + (fields.empty() ? "" : ", " + fields) + "}";
}

/// "status param" of what parsing throws, "" when it does not.
template <class F>
std::string refusal(F body) {
  try {
    body();
  } catch (...) {
    const ApiError error = current_api_error();
    return fmt::format("{} {}", error.status, error.param.value_or("-"));
  }
  return "";
}
std::string chat_refusal(const std::string& body) {
  return refusal([&] { parse_chat(body, kBounds); });
}
std::string completion_refusal(const std::string& body) {
  return refusal([&] { parse_completion(body, kBounds); });
}

TEST(Chat, ReadsMessages) {
  const auto request = parse_chat(R"({"model": "m", "messages": [
      {"role": "developer", "content": "be brief"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Ann"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
        "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "42"}]})",
                                  kBounds);
  EXPECT_EQ(request.messages_json,
            R"([{"role":"system","content":"be brief"},{"role":"user","content":"a\nb","name":"Ann"},)"
            R"({"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":)"
            R"({"name":"f","arguments":{"x":1}}}]},{"role":"tool","content":"42","tool_call_id":"c1"}])");
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.logprobs, -1);
  EXPECT_FALSE(request.max_tokens.has_value());
  EXPECT_FALSE(request.sampling.temperature.has_value());
}

TEST(Chat, EmptyConversationsAreRefused) {  // H17
  EXPECT_EQ(chat_refusal("{}"), "400 messages");
  EXPECT_EQ(chat_refusal(R"({"messages": []})"), "400 messages");
  EXPECT_EQ(chat_refusal(R"({"messages": null})"), "400 messages");
  EXPECT_EQ(chat_refusal(R"({"messages": "hi"})"), "400 messages");
  EXPECT_EQ(chat_refusal(R"({"messages": [{"role": "user", "content": ""}]})"), "400 messages[0].content");
  EXPECT_EQ(chat_refusal(R"({"messages": [{"role": "user", "content": null}]})"), "400 messages[0].content");
  EXPECT_EQ(chat_refusal(R"({"messages": [{"role": "user", "content": []}]})"), "400 messages[0].content");
  EXPECT_EQ(
      chat_refusal(R"({"messages": [{"role": "user", "content": "x"}, {"role": "user"}], "stream": true})"),
      "400 messages[1].content");
  EXPECT_EQ(chat_refusal(R"({"messages": [3]})"), "400 messages[0]");
  EXPECT_EQ(chat_refusal(R"({"messages": [{"content": "x"}]})"), "400 messages[0].role");
  EXPECT_EQ(chat_refusal(R"({"messages": [{"role": "robot", "content": "x"}]})"), "400 messages[0].role");
  EXPECT_EQ(
      chat_refusal(
          R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
      "400 messages");
}

TEST(Chat, MediaIsRefusedBeforeAnythingIsFetched) {
  EXPECT_EQ(
      chat_refusal(
          R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]})"),
      "501 messages[0].content[0]");
  EXPECT_EQ(chat_refusal(R"({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]})"),
            "400 messages[0].content[0].type");
  EXPECT_EQ(chat_refusal(R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})"),
            "400 messages[0].content[0].text");
}

TEST(Chat, Logprobs) {  // H16
  EXPECT_EQ(parse_chat(chat_with(R"("logprobs": true)"), kBounds).logprobs, 0);
  EXPECT_EQ(parse_chat(chat_with(R"("logprobs": true, "top_logprobs": 0)"), kBounds).logprobs, 0);
  EXPECT_EQ(parse_chat(chat_with(R"("logprobs": true, "top_logprobs": 20)"), kBounds).logprobs, 20);
  EXPECT_EQ(parse_chat(chat_with(R"("logprobs": false)"), kBounds).logprobs, -1);
  EXPECT_EQ(chat_refusal(chat_with(R"("logprobs": true, "top_logprobs": 21)")), "400 top_logprobs");
  EXPECT_EQ(chat_refusal(chat_with(R"("top_logprobs": 5)")), "400 top_logprobs");
  EXPECT_EQ(chat_refusal(chat_with(R"("logprobs": 1)")), "400 logprobs");
}

TEST(Chat, ZeroIsAValue) {  // H32
  const auto zero = parse_chat(
      chat_with(
          R"("temperature": 0, "top_p": 0.0, "seed": 0, "presence_penalty": 0, "top_k": 0, "min_p": 0)"),
      kBounds);
  EXPECT_EQ(zero.sampling.temperature, 0.0f);
  EXPECT_EQ(zero.sampling.top_p, 0.0f);
  EXPECT_EQ(zero.sampling.seed, 0u);
  EXPECT_EQ(zero.sampling.presence_penalty, 0.0f);
  EXPECT_EQ(zero.sampling.top_k, 0);
  EXPECT_EQ(zero.sampling.min_p, 0.0f);
  EXPECT_EQ(chat_refusal(chat_with(R"("max_tokens": 0)")), "400 max_tokens");
  EXPECT_EQ(chat_refusal(chat_with(R"("max_completion_tokens": 0)")), "400 max_completion_tokens");
  EXPECT_EQ(parse_completion(completion_with(R"("max_tokens": 0)"), kBounds).max_tokens, 0);
  EXPECT_EQ(parse_chat(chat_with(R"("max_tokens": 3, "max_completion_tokens": 5)"), kBounds).max_tokens, 5);
  EXPECT_FALSE(parse_chat(chat_with(R"("temperature": null)"), kBounds).sampling.temperature.has_value());
}

TEST(Chat, RangesAreTheSamplersOwn) {  // a field that is taken is one that the engine can run with
  for (const char* fields : {R"("top_n_sigma": 0)", R"("top_n_sigma": 1.5)", R"("xtc_threshold": 0.5)",
                             R"("dry_base": 1)", R"("adaptive_decay": 0.99)", R"("repeat_penalty": 0.01)"})
    EXPECT_EQ(chat_refusal(chat_with(fields)), "") << fields;
  EXPECT_EQ(chat_refusal(chat_with(R"("top_n_sigma": -1)")), "400 top_n_sigma");
  EXPECT_EQ(chat_refusal(chat_with(R"("xtc_threshold": 0.51)")), "400 xtc_threshold");
  EXPECT_EQ(chat_refusal(chat_with(R"("dry_base": 0.9)")), "400 dry_base");
  EXPECT_EQ(chat_refusal(chat_with(R"("adaptive_decay": 1)")), "400 adaptive_decay");
  EXPECT_EQ(chat_refusal(chat_with(R"("repetition_penalty": 0.001)")), "400 repetition_penalty");
  EXPECT_EQ(chat_refusal(chat_with(R"("prediction": "x")")), "400 prediction");
}

TEST(Chat, MetadataIsCountedInCharacters) {
  const auto body = [](const std::string& name, const std::string& value) {
    return chat_with(fmt::format(R"("metadata": {{"{}": "{}"}})", name, value));
  };
  std::string name, value;
  for (int i = 0; i < 64; ++i) name += "ü";
  for (int i = 0; i < 512; ++i) value += "\U0001F600";
  EXPECT_EQ(chat_refusal(body(name, value)), "");
  EXPECT_EQ(chat_refusal(body(name + "x", "")), "400 metadata");
  EXPECT_EQ(chat_refusal(body("a", value + "x")), "400 metadata.a");
}

TEST(Chat, SeedsFold) {
  EXPECT_EQ(fold_seed(-1), std::nullopt);
  EXPECT_EQ(fold_seed(4294967295), std::nullopt);
  EXPECT_EQ(fold_seed(-2), 4294967294u);
  EXPECT_EQ(fold_seed(0), 0u);
  EXPECT_EQ(fold_seed(int64_t{1} << 32), 0u);
  EXPECT_TRUE(parse_chat(chat_with(R"("seed": -1)"), kBounds).sampling.seed_given);
}

TEST(Chat, RangesAreChecked) {
  for (const char* field : {R"("temperature": 2.1)",
                            R"("temperature": -0.1)",
                            R"("top_p": 1.1)",
                            R"("min_p": -1)",
                            R"("n": 0)",
                            R"("n": 9)",
                            R"("top_k": -2)",
                            R"("frequency_penalty": 2.5)",
                            R"("presence_penalty": -3)",
                            R"("repetition_penalty": 0)",
                            R"("seed": 1e30)",
                            R"("seed": 1.5)",
                            R"("temperature": "hot")",
                            R"("stream": "yes")",
                            R"("n": true)",
                            R"("stop": 3)",
                            R"("stop": "")",
                            R"("stop": ["a", ""])",
                            R"("stop": [1])",
                            R"("stream_options": {})",
                            R"("user": 3)",
                            R"("metadata": [])",
                            R"("stream_options": 1)"}) {
    EXPECT_EQ(chat_refusal(chat_with(field)).substr(0, 3), "400") << field;
  }
  std::string many = R"("stop": [)";
  for (int i = 0; i < 17; ++i) many += std::string(i ? "," : "") + "\"s\"";
  EXPECT_EQ(chat_refusal(chat_with(many + "]")), "400 stop");
  EXPECT_EQ(parse_chat(chat_with(R"("stop": "x")"), kBounds).sampling.stop, std::vector<std::string>{"x"});
}

TEST(Chat, LogitBias) {  // H18
  const auto request = parse_chat(chat_with(R"("logit_bias": {"99": -100, "0": 100, "7": 0.5})"), kBounds);
  EXPECT_EQ(request.sampling.logit_bias, (std::map<int32_t, float>{{0, 100.0f}, {7, 0.5f}, {99, -100.0f}}));
  for (const char* key : {"100", "2147483648", "-1", "abc", "", "1.0", "+1", " 1", "0x1"}) {
    EXPECT_EQ(chat_refusal(chat_with(fmt::format(R"("logit_bias": {{"{}": 1}})", key))),
              fmt::format("400 logit_bias.{}", key))
        << key;
  }
  EXPECT_EQ(chat_refusal(chat_with(R"("logit_bias": {"5": 1000})")), "400 logit_bias.5");
  EXPECT_EQ(chat_refusal(chat_with(R"("logit_bias": {"5": "NaN"})")), "400 logit_bias.5");
  EXPECT_EQ(chat_refusal(chat_with(R"("logit_bias": {"5": 1, "05": 2})")).substr(0, 14), "400 logit_bias");
  EXPECT_EQ(chat_refusal(chat_with(R"("logit_bias": [[5, 1]])")), "400 logit_bias");
}

TEST(Chat, NothingIsSilentlyIgnored) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("tools": [{"type": "function"}])", "400 tools[0].function"},
      {R"("tools": [{"type": "function", "function": {"name": "a b"}}])", "400 tools[0].function.name"},
      {R"("functions": [])", "400 functions"},
      {R"("function_call": "auto")", "400 function_call"},
      {R"("tool_choice": "required")", "400 tool_choice"},
      {R"("response_format": {})", "400 response_format.type"},
      {R"("response_format": {"type": "json_schema"})", "400 response_format.schema"},
      {R"("response_format": {"type": "json_object"}, "grammar": "root ::= x")", "400 grammar"},
      {R"("json_schema": 5)", "400 json_schema"},
      {R"("reasoning_format": "odd")", "400 reasoning_format"},
      {R"("typical_p": 2)", "400 typical_p"},
      {R"("mirostat": 3)", "400 mirostat"},
      {R"("samplers": ["nobody"])", "400 samplers"},
      {R"("dry_multiplier": -1)", "400 dry_multiplier"},
      {R"("lora": [{"scale": 1}])", "400 lora"},
      {R"("lora": [{"id": 0, "scale": 1}, {"id": 0, "scale": 2}])", "400 lora"},
      {R"("lora": [5])", "400 lora[0]"},
      {R"("lora": {})", "400 lora"},
      {R"("thinking": "much")", "400 thinking"},
      {R"("return_progress": "yes")", "400 return_progress"},
      {R"("id_slot": -2)", "400 id_slot"},
      {R"("n_keep": "all")", "400 n_keep"},
      {R"("modalities": ["text", "audio"])", "501 modalities[1]"},
      {R"("audio": {"voice": "x"})", "400 audio"}};
  for (const auto& [field, expected] : cases) EXPECT_EQ(chat_refusal(chat_with(field)), expected) << field;
  const auto inert =
      parse_chat(chat_with(R"("user": "u", "store": true, "metadata": {"a": "b"}, "service_tier": "auto",
      "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "typical_p": 1, "modalities": ["text"],
      "parallel_tool_calls": false, "mirostat": 0, "lora": [], "whatever": 1, "prediction": {})"),
                 kBounds);
  EXPECT_EQ(inert.ignored, std::vector<std::string>{"whatever"});
  EXPECT_TRUE(inert.sampling.adapters && inert.sampling.adapters->empty());
  const auto adapted =
      parse_chat(chat_with(R"("lora": [{"id": 3, "scale": -0.5}, {"id": 0, "scale": 1}])"), kBounds);
  EXPECT_EQ(*adapted.sampling.adapters, (std::vector<std::pair<int, float>>{{3, -0.5f}, {0, 1.0f}}));
  EXPECT_EQ(inert.echoed.metadata_json, R"({"a":"b"})");
}

TEST(Chat, TemplateVariables) {
  EXPECT_EQ(parse_chat(chat_with(R"("enable_thinking": false, "chat_template_kwargs": {"a": [1]})"), kBounds)
                .template_kwargs_json,
            R"({"a":[1],"enable_thinking":false,"thinking":false})");
  EXPECT_EQ(merge_objects(R"({"a":1,"b":2})", R"({"b":3})"), R"({"b":3,"a":1})");
  EXPECT_EQ(merge_objects("", ""), "");
  EXPECT_EQ(chat_refusal(chat_with(R"("continue_final_message": true)")), "400 continue_final_message");
  const std::string turns =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], )"
      R"("continue_final_message": true, "add_generation_prompt": )";
  EXPECT_EQ(chat_refusal(turns + "true}"), "400 continue_final_message");
  EXPECT_TRUE(*parse_chat(turns + "false}", kBounds).continue_final_message);
}

TEST(Chat, Prints) {
  const Identity identity{"chatcmpl-1", 5, "m", "fp"};
  ChatAnswer answer;
  answer.identity = identity;
  answer.choices.push_back(
      {0, "Hi", "", {}, "stop", true, {{"H", -0.5f, {{"H", -0.5f}, {"\xF0\x9F", -1.0f}}}}});
  answer.usage = {3, 0, 1};
  const auto node = JsonNode::parse(print_chat(answer));
  EXPECT_EQ(node.string("object"), "chat.completion");
  const auto choice = node.find("choices")->items()[0];
  EXPECT_EQ(choice.find("message")->string("content"), "Hi");
  const auto token = choice.find("logprobs")->find("content")->items()[0];
  EXPECT_EQ(token.string("token"), "H");
  EXPECT_EQ(token.find("top_logprobs")->items()[1].string("token"), "\\xf0\\x9f");
  EXPECT_EQ(token.find("top_logprobs")->items()[1].find("bytes")->integers(0, 255),
            (std::vector<int32_t>{0xF0, 0x9F}));
  EXPECT_EQ(node.find("usage")->integer("total_tokens", 0, 99), 4);

  EXPECT_EQ(
      print_chat_chunk(identity, {.index = 1, .role = true}, false),
      R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":5,"model":"m","system_fingerprint":"fp",)"
      R"("choices":[{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(
      print_chat_chunk(identity, {.index = 0, .finish_reason = "length"}, true),
      R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":5,"model":"m","system_fingerprint":"fp",)"
      R"("choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null})");
  const auto last = JsonNode::parse(print_chat_usage_chunk(identity, {2, 1, 3}, {}));
  EXPECT_EQ(last.find("choices")->size(), 0u);
  EXPECT_TRUE(last.find("timings")->has("predicted_n"));  // where llama-server's clients look for them
}

TEST(Completion, PromptShapes) {
  EXPECT_EQ(parse_completion(R"({"prompt": ""})", kBounds).prompts.size(), 1u);
  EXPECT_EQ(parse_completion(R"({"prompt": ["a", "b"]})", kBounds).prompts.size(), 2u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(parse_completion(R"({"prompt": [1, 2]})", kBounds).prompts[0]),
            (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(parse_completion(R"({"prompt": [[1], [2, 3]]})", kBounds).prompts.size(), 2u);
  EXPECT_EQ(completion_refusal("{}"), "400 prompt");
  EXPECT_EQ(completion_refusal(R"({"prompt": []})"), "400 prompt");
  EXPECT_EQ(completion_refusal(R"({"prompt": [[]]})"), "400 prompt[0]");
  EXPECT_EQ(completion_refusal(R"({"prompt": "  \n"})"), "400 prompt");
  EXPECT_EQ(completion_refusal(R"({"prompt": {"a": 1}})"), "400 prompt");
  EXPECT_EQ(completion_refusal(R"({"prompt": [1, 100]})"), "400 prompt[1]");
  EXPECT_EQ(completion_refusal(R"({"prompt": [1, -1]})"), "400 prompt[1]");
  EXPECT_EQ(completion_refusal(R"({"prompt": [1, "a"]})"), "400 prompt[1]");
  EXPECT_EQ(completion_refusal(R"({"prompt": ["a", true]})"), "400 prompt[1]");
  EXPECT_EQ(completion_refusal(R"({"prompt": ["a", "b", "c"], "n": 3})"), "400 n");
}

TEST(Completion, Fields) {
  const auto plain = parse_completion(completion_with(""), kBounds);
  EXPECT_EQ(plain.max_tokens, 16);
  EXPECT_EQ(plain.logprobs, -1);
  EXPECT_EQ(parse_completion(completion_with(R"("logprobs": 0, "echo": true, "best_of": 2, "n": 2)"), kBounds)
                .logprobs,
            0);
  EXPECT_EQ(completion_refusal(completion_with(R"("logprobs": 21)")), "400 logprobs");
  EXPECT_EQ(completion_refusal(completion_with(R"("logprobs": true)")), "400 logprobs");
  EXPECT_EQ(completion_refusal(completion_with(R"("best_of": 2)")), "400 best_of");
  EXPECT_EQ(completion_refusal(completion_with(R"("suffix": 5)")), "400 suffix");
  EXPECT_EQ(parse_completion(completion_with(R"("suffix": "x")"), kBounds).suffix, "x");
}

TEST(Completion, PrintsLegacyLogprobs) {
  CompletionChoice choice{
      .index = 0, .text = "ab", .finish_reason = "", .with_logprobs = true, .logprobs = {}};
  choice.logprobs.push_back({{"a", 0, {}}, false, 0});
  choice.logprobs.push_back({{"b", -0.25f, {{"c", -0.125f}}}, true, 1});
  EXPECT_EQ(
      print_completion_chunk({"cmpl-1", 5, "m", "fp"}, choice, false),
      R"({"id":"cmpl-1","object":"text_completion","created":5,"model":"m","system_fingerprint":"fp","choices":[)"
      R"({"index":0,"text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[null,-0.25],)"
      R"("top_logprobs":[null,{"c":-0.125,"b":-0.25}],"text_offset":[0,1]},"finish_reason":null}]})");
}

TEST(Embedding, Inputs) {
  auto refused = [](const char* body) { return refusal([&] { parse_embedding(body, 100); }); };
  EXPECT_EQ(parse_embedding(R"({"input": "a"})", 100).inputs.size(), 1u);
  EXPECT_FALSE(parse_embedding(R"({"input": "a"})", 100).base64);
  EXPECT_TRUE(parse_embedding(R"({"input": ["a", [1, 2]], "encoding_format": "base64"})", 100).base64);
  EXPECT_EQ(parse_embedding(R"({"input": [{"type": "text", "text": "a"}]})", 100).inputs.size(), 1u);
  EXPECT_EQ(
      parse_embedding(R"({"input": [{"content": "a"}, {"content": [{"type": "text", "text": "b"}]}]})", 100)
          .inputs.size(),
      2u);
  EXPECT_EQ(refused(R"({"input": "a", "encoding_format": "foo"})"), "400 encoding_format");  // H29
  EXPECT_EQ(refused(R"({"input": ""})"), "400 input");
  EXPECT_EQ(refused(R"({"input": ["a", ""]})"), "400 input[1]");
  EXPECT_EQ(refused(R"({"input": []})"), "400 input");
  EXPECT_EQ(refused("{}"), "400 input");
  EXPECT_EQ(refused(R"({"input": [1, 200]})"), "400 input[1]");
  EXPECT_EQ(refused(R"({"input": 3})"), "400 input");
  EXPECT_EQ(refused(R"({"input": "a", "dimensions": 0})"), "400 dimensions");
  EXPECT_EQ(refused(R"({"input": [{"type": "image_url", "image_url": {}}]})"), "501 input[0]");
}

TEST(Embedding, Norms) {
  std::vector<float> v = {3, -4};
  normalize_embedding(v, 2);
  EXPECT_FLOAT_EQ(v[0], 0.6f);
  EXPECT_FLOAT_EQ(v[1], -0.8f);
  v = {3, -4};
  normalize_embedding(v, 1);
  EXPECT_FLOAT_EQ(v[1], -4.0f / 7);
  v = {3, -4};
  normalize_embedding(v, 0);
  EXPECT_FLOAT_EQ(v[1], -32760.0f);
  v = {3, -4};
  normalize_embedding(v, -1);
  EXPECT_FLOAT_EQ(v[0], 3.0f);
  v = {0, 0};
  normalize_embedding(v, 2);
  EXPECT_FLOAT_EQ(v[0], 0.0f);
}

TEST(Embedding, Prints) {
  EXPECT_EQ(
      print_embeddings({{1.0f, 0.5f}}, false, "m", 3),
      R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,0.5],"shape":[2]}],"model":"m",)"
      R"("usage":{"prompt_tokens":3,"total_tokens":3}})");
  EXPECT_NE(print_embeddings({{1.0f}}, true, "m", 3).find(R"("embedding":"AACAPw==")"), std::string::npos);
}

TEST(Models, Prints) {
  ModelEntry entry;
  entry.id = "m";
  entry.n_params = 134515008;
  entry.format = "gguf";
  const auto node = JsonNode::parse(print_models({entry}));
  EXPECT_EQ(node.find("data")->items()[0].string("id"), "m");
  EXPECT_EQ(node.find("models")->items()[0].find("details")->string("parameter_size"), "134.5M");
}

}  // namespace
}  // namespace mlxcel::openai
