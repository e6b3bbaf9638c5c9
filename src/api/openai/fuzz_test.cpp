// Bodies broken at random: a parser answers with a struct, an Error or a Refusal, and nothing else.
#include <gtest/gtest.h>

#include <random>

#include "api/error.h"
#include "api/openai/chat.h"
#include "api/openai/completion.h"
#include "api/openai/embedding.h"

namespace mlxcel::openai {
namespace {

const char* const kSeeds[] = {
    R"({"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]}],)"
    R"("stream":true,"stream_options":{"include_usage":true},"n":2,"stop":["x","y"],"logit_bias":{"5":-1.5},"seed":7})",
    R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":)"
    R"({"name":"f","arguments":"{\"a\":[1,2]}"}}]},{"role":"tool","content":"ü€😀","tool_call_id":"1"}],"logprobs":true,"top_logprobs":3})",
    R"({"prompt":[[1,2,3],[4]],"max_tokens":0,"echo":true,"logprobs":5,"best_of":1,"temperature":0.5,"extra_body":{"top_k":3}})",
    R"({"input":["a",[1,2],{"content":[{"type":"text","text":"c"}]}],"encoding_format":"base64","dimensions":3})",
};
const char* const kPieces[] = {"null",
                               "true",
                               "-1",
                               "1e999",
                               "[]",
                               "{}",
                               "\"\"",
                               "\"\\ud800\"",
                               "\xff",
                               "\x00x",
                               "18446744073709551616",
                               "[[[[",
                               "}}}}",
                               ",",
                               ":",
                               "\"a\":",
                               "0.1e-400",
                               "\"\\u0000\"",
                               "{\"type\":\"image_url\"}"};

TEST(Fuzz, BrokenBodiesAreAnswered) {
  std::mt19937 random(20240607);
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const Bounds bounds{.vocab_size = 100, .max_choices = 8};
  int accepted = 0, refused = 0;
  for (int i = 0; i < 30000; ++i) {
    std::string body = kSeeds[below(std::size(kSeeds))];
    for (size_t edits = 1 + below(4); edits > 0 && !body.empty(); --edits) {
      const size_t at = below(body.size());
      switch (below(5)) {
        case 0:
          body.erase(at, 1 + below(8));
          break;
        case 1:
          body[at] = static_cast<char>(below(256));
          break;
        case 2:
          body.insert(at, kPieces[below(std::size(kPieces))]);
          break;
        case 3:
          body.insert(at, body.substr(below(body.size()), below(40)));
          break;
        case 4: {  // a value for a value
          const auto colon = body.find(':', at);
          const auto end = body.find_first_of(",}", colon == std::string::npos ? 0 : colon);
          if (colon != std::string::npos && end != std::string::npos) {
            body.replace(colon + 1, end - colon - 1, kPieces[below(std::size(kPieces))]);
          }
          break;
        }
      }
    }
    for (int parser = 0; parser < 3; ++parser) {
      try {
        if (parser == 0) parse_chat(body, bounds);
        if (parser == 1) parse_completion(body, bounds);
        if (parser == 2) parse_embedding(body, 100);
        ++accepted;
      } catch (...) {
        ++refused;
        const ApiError error = current_api_error();
        ASSERT_TRUE(error.status == 400 || error.status == 501)
            << error.status << " " << error.message << "\n"
            << body;
        ASSERT_FALSE(error.message.empty());
      }
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace mlxcel::openai
