// Hostile JSON, printing, base64, UTF-8: what every wire format stands on.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "api/error.h"
#include "api/json_node.h"
#include "api/json_writer.h"
#include "api/llama/rerank.h"
#include "api/sse.h"
#include "api/tools.h"
#include "api/utf8.h"
#include "base/base64.h"

namespace mlxcel {
namespace {

/// The error's param, or its message where it has none; "" when nothing is thrown.
template <class F>
std::string complaint(F body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    return error.param().empty() ? error.what() : error.param();
  }
  return "";
}

TEST(JsonNode, ReadsTypedFields) {
  const auto body = JsonNode::parse_request(
      R"({"a": 1, "b": 2.0, "c": "x", "d": true, "e": null, "f": [1, 2], "g": {"h": -3}})");
  EXPECT_EQ(body.integer("a", 0, 10), 1);
  EXPECT_EQ(body.integer("b", 0, 10), 2);  // an integral float is an integer
  EXPECT_EQ(body.string("c"), "x");
  EXPECT_EQ(body.boolean("d"), true);
  EXPECT_FALSE(body.has("e"));
  EXPECT_EQ(body.find("f")->integers(0, 5), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(body.find("g")->integer("h", -5, 5), -3);
  EXPECT_EQ(body.unknown(), std::vector<std::string>{});
}

TEST(JsonNode, RemembersWhatNobodyAskedFor) {
  const auto body = JsonNode::parse_request(R"({"a": 1, "b": 2, "c": {"d": 1}})");
  body.integer("b", 0, 9);
  EXPECT_EQ(body.unknown(), (std::vector<std::string>{"a", "c"}));
}

TEST(JsonNode, ExtraBodyCountsAsRootAndRootWins) {
  const auto body = JsonNode::parse_request(R"({"a": 1, "extra_body": {"a": 2, "b": 3}})");
  EXPECT_EQ(body.integer("a", 0, 9), 1);
  EXPECT_EQ(body.integer("b", 0, 9), 3);
  EXPECT_FALSE(body.has("extra_body"));
  EXPECT_EQ(complaint([] { JsonNode::parse_request(R"({"extra_body": 3})"); }), "extra_body");
}

TEST(JsonNode, WrongTypesNameTheField) {
  const auto body =
      JsonNode::parse_request(R"({"n": "1", "s": 1, "b": 0, "f": 1.5, "l": [1, [2], "x"], "o": [{"k": 1}]})");
  EXPECT_EQ(complaint([&] { body.integer("n", 0, 9); }), "n");
  EXPECT_EQ(complaint([&] { body.string("s"); }), "s");
  EXPECT_EQ(complaint([&] { body.boolean("b"); }), "b");
  EXPECT_EQ(complaint([&] { body.integer("f", 0, 9); }), "f");
  EXPECT_EQ(complaint([&] { body.find("l")->integers(0, 9); }), "l[1]");
  EXPECT_EQ(complaint([&] { body.find("o")->items()[0].string("k"); }), "o[0].k");
  EXPECT_EQ(complaint([&] { body.find("s")->find("x"); }), "s");
}

TEST(JsonNode, NothingHidesBehindANul) {
  using std::string_literals::operator""s;
  for (const std::string& text :
       {"{\"a\": 1}\0"s, "{\"a\": 1}\0{\"b\": 2}"s, "\0{\"a\": 1}"s, "{\"a\0\": 1}"s}) {
    EXPECT_THROW(JsonNode::parse_request(text), Error) << text;
  }
  EXPECT_EQ(JsonNode::parse_request("{\"a\": \"x\\u0000y\"}").string("a"), "x\0y"s);
}

TEST(JsonNode, NumbersAreBounded) {
  const auto body = JsonNode::parse_request(
      R"({"big": 100000000000000000000000000, "max": 18446744073709551615, "min": -9223372036854775808, "e": 1e300,
          "tiny": -1e-300})");
  EXPECT_EQ(complaint([&] { body.integer("big", INT64_MIN, INT64_MAX); }), "big");
  EXPECT_EQ(complaint([&] { body.integer("max", INT64_MIN, INT64_MAX); }), "max");
  EXPECT_EQ(body.integer("min", INT64_MIN, INT64_MAX), INT64_MIN);
  EXPECT_EQ(complaint([&] { body.integer("e", INT64_MIN, INT64_MAX); }), "e");
  EXPECT_EQ(complaint([&] { body.number("tiny", 0, 1); }), "tiny");
  EXPECT_NE(complaint([] { JsonNode::parse_request(R"({"a": 1e999})"); }), "");
}

TEST(JsonNode, RefusesWhatIsNotJson) {
  for (const char* text : {"",
                           "  ",
                           "{",
                           "}",
                           "[1]",
                           "3",
                           "null",
                           "{\"a\":1}x",
                           "{\"a\":NaN}",
                           "{\"a\":Infinity}",
                           "{'a':1}",
                           "{\"a\":01}",
                           "{\"a\":\"\x80\"}",
                           "{\"a\":\"\xC0\xAF\"}",
                           "{\"a\":\"\\ud800\"}",
                           "{\"a\":\"\x01\"}",
                           "{\"a\" 1}",
                           "{\"a\":1,}",
                           "{\"a\":.5}",
                           "\xEF\xBB",
                           "{\"a\":tru}"}) {
    EXPECT_NE(complaint([&] { JsonNode::parse_request(text); }), "") << text;
  }
  EXPECT_NE(complaint([] { JsonNode::parse_request(std::string("{\"a\": \"\0\"}", 10)); }), "");
}

TEST(JsonNode, RefusesDepthCountAndDuplicates) {
  const std::string deep = "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_NE(complaint([&] { JsonNode::parse_request(deep); }).find("deeper"), std::string::npos);
  const std::string objects = [] {
    std::string out;
    for (int i = 0; i < 200; ++i) out += "{\"a\":";
    return out + "1" + std::string(200, '}');
  }();
  EXPECT_NE(complaint([&] { JsonNode::parse_request(objects); }).find("deeper"), std::string::npos);
  const JsonLimits few{.depth = 8, .values = 10};
  EXPECT_NE(complaint([&] { JsonNode::parse("[1,2,3,4,5,6,7,8,9,10,11]", few); }).find("more than 10"),
            std::string::npos);
  EXPECT_EQ(complaint([] { JsonNode::parse_request(R"({"a": 1, "b": 2, "a": 3})"); }), "a");
  EXPECT_EQ(complaint([] { JsonNode::parse_request(R"({"x": {"k": 1}, "y": [{"k": 1, "k": 2}]})"); }), "k");
  EXPECT_EQ(complaint([] { JsonNode::parse_request(R"({"x": {"k": 1}, "y": {"k": 1}, "k": 3})"); }), "");
}

TEST(JsonWriter, EscapesAndPrintsShortestNumbers) {
  JsonWriter out;
  out.begin_object().field("s", "a\"\\\n\t\x01\x7F é €").field("f", 0.1f).field("d", 0.1).field("i", -7);
  out.field("b", true)
      .key("n")
      .null()
      .key("nan")
      .value(std::nan(""))
      .key("inf")
      .value(std::numeric_limits<float>::infinity());
  out.key("l")
      .begin_array()
      .value(1)
      .value("x")
      .begin_array()
      .end_array()
      .begin_object()
      .end_object()
      .end_array()
      .end_object();
  EXPECT_EQ(out.text(),
            "{\"s\":\"a\\\"\\\\\\n\\t\\u0001\x7F é €\",\"f\":0.1,\"d\":0.1,\"i\":-7,\"b\":true,\"n\":null,"
            "\"nan\":null,\"inf\":null,\"l\":[1,\"x\",[],{}]}");
  EXPECT_EQ(JsonNode::parse(out.text()).string("s"), "a\"\\\n\t\x01\x7F é €");
}

TEST(JsonWriter, ReplacesBytesThatAreNotText) {
  EXPECT_EQ(JsonWriter().value("a\xE2\x82z\xFF").take(), "\"a\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD\"");
  EXPECT_EQ(JsonWriter().value(std::string_view("\0", 1)).take(), "\"\\u0000\"");
}

TEST(Utf8, KnowsSequences) {
  EXPECT_TRUE(is_utf8("aé€😀"));
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xF0\x9F\x98"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
  EXPECT_EQ(utf8_length("aé€😀"), 4u);
  EXPECT_EQ(utf8_sequence("\xF4\x8F\xBF\xBF"), 4u);
}

TEST(Base64, RoundTripsAndRefuses) {
  const std::pair<std::string, std::string> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : cases) {
    EXPECT_EQ(base64_encode(std::as_bytes(std::span(plain))), coded);
    EXPECT_EQ(base64_decode(coded), plain);
  }
  EXPECT_EQ(base64_decode("Zg"), "f");
  for (const char* bad : {"Z", "Zg=", "Zh==", "Z===", "Zm9v!", "Zm 9v", "====", "Zm9v="}) {
    EXPECT_FALSE(base64_decode(bad).has_value()) << bad;
  }
  const std::vector<float> values = {1.0f, -2.5f, 3e-8f};
  const auto bytes = base64_decode(base64_floats(values));
  ASSERT_TRUE(bytes && bytes->size() == 12);
  std::vector<float> back(3);
  std::memcpy(back.data(), bytes->data(), 12);
  EXPECT_EQ(back, values);
  EXPECT_EQ(base64_floats(std::vector<float>{1.0f}), "AACAPw==");
}

TEST(ApiError, PrintsOpenAiShape) {
  EXPECT_EQ(
      print_error({400, "invalid_request_error", "bad \"x\"", "messages[0]"}),
      R"({"error":{"message":"bad \"x\"","type":"invalid_request_error","param":"messages[0]","code":400}})");
  EXPECT_EQ(print_error(to_api_error(Error(ErrorKind::internal, "oops"))),
            R"({"error":{"message":"oops","type":"server_error","param":null,"code":500}})");
  try {
    refuse(503, "server_busy", "All slots are busy");
  } catch (...) {
    EXPECT_EQ(current_api_error().status, 503);
  }
  try {
    throw std::bad_alloc();
  } catch (...) {
    EXPECT_EQ(current_api_error().status, 500);
  }
}

TEST(Sse, Frames) { EXPECT_EQ(sse_event("{}"), "data: {}\n\n"); }

TEST(Tools, ArgumentsThatWereCutAreClosed) {
  EXPECT_EQ(whole_arguments(R"({"a":1})"), R"({"a":1})");
  EXPECT_EQ(whole_arguments(R"({"a":"x)"), R"({"a":"x"})");
  EXPECT_EQ(whole_arguments(R"({"a":[1,{"b":"x")"), R"({"a":[1,{"b":"x"}]})");
  EXPECT_EQ(whole_arguments(R"({"a":12)"), R"({"a":12})");
  EXPECT_EQ(whole_arguments(""), "{}");
  EXPECT_EQ(whole_arguments("oops"), "{}");
}

TEST(Tools, NullContentsBecomeText) {
  EXPECT_EQ(with_text_contents(R"([{"role":"user","content":"a"}])"), "");
  EXPECT_EQ(with_text_contents(
                R"([{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[]}])"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[]}])");
}

std::string rerank_refusal(const std::string& body) {
  try {
    llama::parse_rerank(body);
  } catch (const Refusal& refusal) {
    return std::to_string(refusal.error().status);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Rerank, BothDialects) {
  const auto jina = llama::parse_rerank(
      R"({"query": "q", "documents": ["a", {"text": "b"}, "c"], "top_n": 2, "return_documents": true, "odd": 1})");
  EXPECT_EQ(jina.documents, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(jina.ignored, std::vector<std::string>{"odd"});
  EXPECT_EQ(llama::print_rerank(jina, {0.25, 0.5, 0.5}, 7, "m"),
            R"({"model":"m","object":"list","usage":{"prompt_tokens":7,"total_tokens":7},"results":[)"
            R"({"index":1,"relevance_score":0.5,"document":{"text":"b"}},)"
            R"({"index":2,"relevance_score":0.5,"document":{"text":"c"}}]})");
  const auto tei =
      llama::parse_rerank(R"({"query": {"text": "q"}, "texts": ["a", "b"], "return_text": true})");
  EXPECT_TRUE(tei.tei);
  EXPECT_EQ(llama::print_rerank(tei, {0.25, 0.75}, 7, "m"),
            R"([{"index":1,"score":0.75,"text":"b"},{"index":0,"score":0.25,"text":"a"}])");
}

TEST(Rerank, SaysWhatIsMissing) {
  EXPECT_EQ(rerank_refusal(R"({"documents": ["a"]})"), "\"query\" must be provided");
  EXPECT_EQ(rerank_refusal(R"({"query": 5, "documents": ["a"]})"), "\"query\" must be a string");
  for (const char* bad : {R"({"query": "q"})", R"({"query": "q", "documents": []})",
                          R"({"query": "q", "documents": "a"})", R"({"query": "q", "documents": [5]})"})
    EXPECT_EQ(rerank_refusal(bad), "\"documents\" must be a non-empty string array") << bad;
  EXPECT_NE(rerank_refusal(R"({"query": "q", "documents": ["a"], "top_n": 0})").find("top_n"),
            std::string::npos);
  EXPECT_EQ(rerank_refusal(R"({"query": "q", "documents": [{"text": "a", "image": "x"}]})"), "501");
}

}  // namespace
}  // namespace mlxcel
