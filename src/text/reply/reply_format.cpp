#include "text/reply/reply_format.h"

#include <algorithm>

namespace mlxcel {
namespace {

using Frames = std::vector<CallFrame>;

CallFrame tagged(std::string open, std::string close, std::string prefix = {}) {
  return {
      .open = std::move(open), .scan = scan_tagged, .close = std::move(close), .inner = std::move(prefix)};
}
CallFrame list(std::string open, std::string close = {}, bool ends_thought = false) {
  return {
      .open = std::move(open), .ends_thought = ends_thought, .scan = scan_json, .close = std::move(close)};
}
CallFrame invoke(std::string open, std::string close, const std::string& prefix) {
  return {.open = std::move(open),
          .scan = scan_invoke,
          .close = std::move(close),
          .inner = prefix + "invoke",
          .inner2 = prefix + "parameter"};
}
CallFrame section(std::string open, std::string close, std::string begin, std::string separator) {
  return {.open = std::move(open),
          .ends_thought = true,
          .scan = scan_section,
          .close = std::move(close),
          .inner = std::move(begin),
          .inner2 = std::move(separator)};
}

/// One way of writing calls: known by any of `signs` in the template.
struct Family {
  const char* name;
  std::vector<std::string> signs;
  Frames frames;
  std::vector<std::string> marks = {};
};

// The order matters: what is more particular comes first, since many templates also speak of <tool_call>.
const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"minimax_m3",
       {"]<]minimax[>["},
       {{.open = "]<]minimax[>[<tool_call>",
         .ends_thought = true,
         .scan = scan_nested,
         .close = "]<]minimax[>[</tool_call>",
         .inner = "]<]minimax[>["}}},
      {"minimax", {"<minimax:tool_call>"}, {invoke("<minimax:tool_call>", "</minimax:tool_call>", "")}},
      {"atem",
       {"<atem:function_calls>"},
       {invoke("<atem:function_calls>", "</atem:function_calls>", "atem:")}},
      {"dsml",
       {"<｜DSML｜", "｜DSML｜"},
       {invoke("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜"),
        invoke("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜")}},
      {"minicpm",
       {"<function name=\""},
       {{.open = "<function ", .scan = scan_invoke, .inner = "function", .inner2 = "param"},
        tagged("<tool_call>", "</tool_call>")}},
      {"gemma4",
       {"<|tool_call>"},
       {{.open = "<|tool_call>", .ends_thought = true, .scan = scan_gemma, .close = "<tool_call|>"}},
       {"<|\"|>"}},
      {"function_gemma",
       {"<start_function_call>"},
       {{.open = "<start_function_call>", .scan = scan_gemma, .close = "<end_function_call>"}},
       {"<escape>"}},
      {"kimi_k3",
       {"<|open|>"},
       {{.open = "<|open|>tools<|sep|>",
         .ends_thought = true,
         .scan = scan_xtml,
         .close = "<|close|>tools<|sep|>"}},
       {"<|open|>", "<|close|>", "<|sep|>"}},
      {"kimi",
       {"<|tool_calls_section_begin|>"},
       {section("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                "<|tool_call_argument_begin|>")},
       {"<|tool_call_end|>"}},
      {"deepseek",
       {"<｜tool▁calls▁begin｜>"},
       {section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>")},
       {"<｜tool▁call▁end｜>"}},
      {"longcat",
       {"<longcat_tool_call>"},
       {tagged("<longcat_tool_call>", "</longcat_tool_call>", "longcat_")}},
      {"seed", {"<seed:tool_call>"}, {tagged("<seed:tool_call>", "</seed:tool_call>")}},
      {"lfm2",
       {"<|tool_call_start|>", "<|tool_list_start|>"},
       {{.open = "<|tool_call_start|>",
         .ends_thought = true,
         .scan = scan_python,
         .close = "<|tool_call_end|>"}}},
      {"mistral",
       {"[TOOL_CALLS]"},
       {{.open = "[TOOL_CALLS]", .ends_thought = true, .scan = scan_mistral}},
       {"[ARGS]", "[CALL_ID]"}},
      {"command",
       {"<|START_ACTION|>"},
       {list("<|START_ACTION|>", "<|END_ACTION|>", true)},
       {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
      {"command_r", {"Action: ```json", "Action:```json"}, {list("Action:", "```")}},
      {"apertus", {"<|tools_prefix|>"}, {list("<|tools_prefix|>", "<|tools_suffix|>", true)}},
      {"internlm", {"<|action_start|>"}, {list("<|action_start|><|plugin|>", "<|action_end|>", true)}},
      {"nemotron", {"<TOOLCALL>"}, {list("<TOOLCALL>", "</TOOLCALL>")}},
      {"glm", {"<arg_key>"}, {tagged("<tool_call>", "</tool_call>")}},
      {"qwen3_coder",
       {"<function="},
       {tagged("<tool_call>", "</tool_call>"), tagged("<function=", "</function>")}},
      {"hermes", {"<tool_call>"}, {tagged("<tool_call>", "</tool_call>")}},
      {"hunyuan",
       {"<tool_calls>"},
       {list("<tool_calls>", "</tool_calls>"), tagged("<tool_call>", "</tool_call>")}},
      {"phi", {"<|/tool_call|>"}, {list("<|tool_call|>", "<|/tool_call|>")}},
      {"granite", {"<|tool_call|>"}, {list("<|tool_call|>")}},
      {"functools", {"functools["}, {list("functools")}},
      {"olmo",
       {"<function_calls>"},
       {{.open = "<function_calls>", .scan = scan_python, .close = "</function_calls>"}}},
      {"pythonic",
       {"[func_name1(", "func_name(params", "<|python_start|>"},
       {{.open = "<|python_start|>", .scan = scan_python, .close = "<|python_end|>"},
        {.open = "[", .head_only = true, .scan = scan_python}}},
      {"llama",
       {"<|python_tag|>", "\"parameters\":"},
       {{.open = "<|python_tag|>", .ends_thought = true, .scan = scan_llama},
        {.open = "{", .head_only = true, .scan = scan_llama}}},
  };
  return all;
}

const std::vector<ThoughtMarks>& thought_marks() {
  static const std::vector<ThoughtMarks> all = {
      {"<think>", "</think>"},
      {"<mm:think>", "</mm:think>"},
      {"<|channel>thought", "<channel|>"},
      {"[THINK]", "[/THINK]"},
      {"<|START_THINKING|>", "<|END_THINKING|>"},
      {"<longcat_think>", "</longcat_think>"},
      {"<seed:think>", "</seed:think>"},
      {"<|think:start|>", "<|think:end|>"},
      {"<|open|>think<|sep|>", "<|close|>think<|sep|>"},
      {"<|inner_prefix|>", "<|inner_suffix|>"},
      {"<thought>", "</thought>"},
      {"<reasoning>", "</reasoning>"},
  };
  return all;
}

/// {"name": …, "arguments": …} between two marks: what every parser of marked calls reads.
CallWriting json_between(const std::string& open, const std::string& close,
                         const char* arguments = "arguments") {
  return {open + "{\"name\": \"", std::string("\", \"") + arguments + "\": ", "}" + close};
}

bool has(std::string_view text, std::string_view sign);

CallWriting writing_of(const ReplyFormat& format, std::string_view source) {
  const auto& name = format.name;
  if (name == "harmony")
    return {"<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", "", false};
  const CallFrame& frame = format.frames.front();
  if (name == "kimi")
    return {frame.open + frame.inner + "functions.", ":0" + frame.inner2, "<|tool_call_end|>" + frame.close,
            "", false};
  if (name == "deepseek") {
    const bool fenced = has(source, "```json");
    return {frame.open + frame.inner + (fenced ? "function" + frame.inner2 : ""),
            fenced ? "\n```json\n" : frame.inner2,
            std::string(fenced ? "\n```" : "") + "<｜tool▁call▁end｜>" + frame.close, "", false};
  }
  if (name == "gemma4" || name == "function_gemma") return {frame.open + "call:", "", frame.close, ""};
  if (name == "mistral") {
    if (has(source, "[ARGS]")) return {"[TOOL_CALLS]", "[ARGS]", "", ""};
    auto out = json_between("[TOOL_CALLS][", "]");
    out.several = false;
    return out;
  }
  if (name == "llama") {
    auto out = json_between("", "", "parameters");
    out.separator = "; ";
    return out;
  }
  if (name == "command" || name == "command_r") {
    CallWriting out{
        name == "command" ? frame.open + "[{\"tool_name\": \"" : "Action: ```json\n[{\"tool_name\": \"",
        "\", \"parameters\": ", name == "command" ? "}]" + frame.close : "}]\n```"};
    out.several = false;
    return out;
  }
  if (name == "apertus") return {frame.open + "[{\"", "\": ", "}]" + frame.close, "", false};
  if (name == "granite" || name == "phi" || name == "nemotron" || name == "functools" || name == "hunyuan" ||
      name == "pythonic" || name == "lfm2" || name == "olmo") {
    const bool bare = name == "pythonic";
    auto out = json_between(bare ? "[" : frame.open + "[", "]" + (bare ? "" : frame.close));
    out.several = false;
    return out;
  }
  if (name == "minicpm") return json_between("<tool_call>\n", "\n</tool_call>");
  if (frame.close.empty()) return json_between(frame.open, "");
  return json_between(frame.open + "\n", "\n" + frame.close);
}

bool has(std::string_view text, std::string_view sign) { return text.find(sign) != std::string_view::npos; }

/// The writing, and how it is told in an answer that need not be a call.
CallWriting told_writing(const ReplyFormat& format, std::string_view source) {
  CallWriting out = writing_of(format, source);
  if (format.harmony) {
    out.opening = out.before;
  } else if (format.name == "command_r") {
    out.opening = "Action: ```json";  // the frame's own mark is a word of any text
  } else if (const CallFrame& first = format.frames.front(); out.before.starts_with(first.open)) {
    out.opening = first.open;
  } else {
    out.at_head = std::any_of(format.frames.begin(), format.frames.end(), [&](const CallFrame& frame) {
      return frame.head_only && out.before.starts_with(frame.open);
    });
  }
  return out;
}

}  // namespace

std::shared_ptr<const ReplyFormat> reply_format(std::string_view source) {
  auto out = std::make_shared<ReplyFormat>();
  out->native_tools = has(source, "tools");
  if (has(source, "<|channel|>") && has(source, "<|message|>")) {
    out->name = "harmony";
    out->harmony = true;
    out->marks = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>",
                  "<|end|>",   "<|call|>",    "<|return|>"};
    out->writing = told_writing(*out, source);
    return out;
  }
  for (const auto& family : families()) {
    const bool known =
        std::any_of(family.signs.begin(), family.signs.end(), [&](const auto& s) { return has(source, s); });
    if (!known) continue;
    out->name = family.name;
    out->frames = family.frames;
    out->marks = family.marks;
    break;
  }
  if (out->frames.empty() || !out->native_tools) {
    out->name = "hermes";
    out->frames = {tagged("<tool_call>", "</tool_call>")};
    out->marks.clear();
  }
  out->writing = told_writing(*out, source);
  for (const auto& marks : thought_marks()) {
    // A template may write its marks in pieces, so either of the two will do.
    const bool gemma = marks.close == "<channel|>" && has(source, "<|channel>");
    const bool kimi = marks.open == "<|open|>think<|sep|>" && out->name == "kimi_k3";
    if (has(source, marks.open) || has(source, marks.close) || gemma || kimi) out->thoughts.push_back(marks);
  }
  if (out->thoughts.empty()) out->thoughts.push_back(thought_marks().front());
  if (out->name == "kimi_k3")
    out->silent = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"};
  if (out->name == "atem" && has(source, "to=self")) {
    out->harmony = true;  // recipients in headers, calls in frames
    for (const char* mark : {"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"}) out->marks.emplace_back(mark);
  }
  if (out->name == "command") out->silent = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"};
  for (const auto& marks : out->thoughts) {
    out->marks.push_back(marks.open);
    out->marks.push_back(marks.close);
  }
  for (const char* piece : {"<|channel>", "<channel|>"}) {
    if (has(source, piece)) out->marks.emplace_back(piece);
  }
  for (const auto& frame : out->frames) {
    for (const auto* mark : {&frame.open, &frame.close, &frame.inner, &frame.inner2}) {
      if (mark->size() > 1) out->marks.push_back(*mark);
    }
  }
  return out;
}

std::vector<std::string> reply_format_names() {
  std::vector<std::string> out = {"harmony"};
  for (const auto& family : families()) out.emplace_back(family.name);
  return out;
}

}  // namespace mlxcel
