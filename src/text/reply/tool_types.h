// What a request's tools say about their arguments: which names there are, and which type a parameter has.
// Wire formats without types of their own (XML) are typed by it. Owner: value, shared. Thread: any,
// immutable. Failure: none; what is not understood has no type.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mlxcel {

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object
  std::string id;         // the format's own; usually empty
};

class ToolTypes {
 public:
  ToolTypes() = default;
  /// `tools_json`: [{"type": "function", "function": {"name", "parameters": <JSON schema>}}], or empty.
  explicit ToolTypes(std::string_view tools_json);

  bool knows(std::string_view name) const { return tools_.find(name) != tools_.end(); }
  bool empty() const { return tools_.empty(); }
  std::vector<std::string> names() const;
  /// The name as the request spells it: a leading namespace (functions.get, api:get) is taken off.
  std::string plain_name(std::string_view written) const;
  /// Whether a parameter is a text and nothing else, whatever stands there.
  bool is_text(std::string_view tool, std::string_view parameter) const;
  /// The JSON text of a parameter that came as plain text.
  std::string typed(std::string_view tool, std::string_view parameter, std::string_view text) const;

 private:
  struct Types {
    bool text = false, number = false, integer = false, boolean = false, null = false, container = false;
    bool known() const { return text || number || integer || boolean || null || container; }
  };
  friend class TypeReader;
  std::map<std::string, std::map<std::string, Types, std::less<>>, std::less<>> tools_;
};

}  // namespace mlxcel
