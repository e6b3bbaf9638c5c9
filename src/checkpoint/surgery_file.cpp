// The YAML of surgery: version 1, a list of operations, no unknown keys.
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/rules/pattern.h"
#include "checkpoint/surgery.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFile = size_t{4} << 20;
constexpr size_t kMostOperations = 10000;
constexpr size_t kMostIds = 1 << 20;

class Reader {
 public:
  explicit Reader(const fs::path& file) : file_(file) {}

  Surgery read() {
    YAML::Node root;
    try {
      root = YAML::Load(read_file(file_, kMostFile));
    } catch (const YAML::Exception& error) {
      fail(ErrorKind::invalid_request, "{}: line {}: {}", file_.string(), error.mark.line + 1, error.msg);
    }
    if (!root.IsMap()) refuse(root, "expected `version: 1` and `operations:`");
    allow(root, {"version", "operations"});
    if (!root["version"] || text(root["version"], "version") != "1") refuse(root, "version: expected 1");
    const YAML::Node list = root["operations"];
    if (!list || !list.IsSequence() || list.size() == 0) refuse(root, "operations: expected a list");
    if (list.size() > kMostOperations) refuse(list, "operations: over 10000");
    Surgery surgery{file_, {}};
    for (const YAML::Node& node : list) surgery.operations.push_back(operation(node));
    return surgery;
  }

 private:
  [[noreturn]] void refuse(const YAML::Node& node, const std::string& what) const {
    fail(ErrorKind::invalid_request, "{}: line {}: {}", file_.string(), node.Mark().line + 1, what);
  }

  void allow(const YAML::Node& map, const std::set<std::string>& known) const {
    std::set<std::string> seen;
    for (const auto& entry : map) {
      const auto key = entry.first.IsScalar() ? entry.first.Scalar() : std::string("(not a word)");
      if (!known.contains(key)) {
        std::string list;
        for (const auto& name : known) list += (list.empty() ? "" : ", ") + name;
        refuse(entry.first, fmt::format("unknown key \"{}\"; expected {}", key, list));
      }
      if (!seen.insert(key).second) refuse(entry.first, fmt::format("{}: given twice", key));
    }
  }

  std::string text(const YAML::Node& node, const char* key) const {
    if (!node.IsScalar() || node.Scalar().empty()) refuse(node, fmt::format("{}: expected a text", key));
    return node.Scalar();
  }

  std::string required(const YAML::Node& map, const char* key) const {
    const YAML::Node node = map[key];
    if (!node) refuse(map, fmt::format("{} is missing", key));
    return text(node, key);
  }

  double number(const YAML::Node& map, const char* key, const double* fallback = nullptr) const {
    const YAML::Node node = map[key];
    if (!node && fallback) return *fallback;
    if (!node) refuse(map, fmt::format("{} is missing", key));
    try {
      const double value = node.as<double>();
      if (std::isfinite(value)) return value;
    } catch (const YAML::Exception&) {
    }
    refuse(node, fmt::format("{}: expected a finite number", key));
  }

  fs::path source(const YAML::Node& map, const char* key) const {
    const fs::path path = file_.parent_path() / required(map, key);
    std::error_code error;
    if (!fs::exists(path, error))
      refuse(map[key], fmt::format("{}: {}: no such file or folder", key, path.string()));
    return path;
  }

  std::vector<int> ids(const YAML::Node& map, const char* key) const {
    const YAML::Node node = map[key];
    if (!node || !node.IsSequence() || node.size() == 0)
      refuse(map, fmt::format("{}: expected a list of numbers", key));
    if (node.size() > kMostIds) refuse(node, fmt::format("{}: over a million numbers", key));
    std::set<int> out;
    for (const YAML::Node& entry : node) {
      int id = -1;
      try {
        id = entry.as<int>();
      } catch (const YAML::Exception&) {
      }
      if (id < 0) refuse(entry, fmt::format("{}: expected numbers from 0", key));
      out.insert(id);
    }
    return {out.begin(), out.end()};
  }

  SurgeryOp operation(const YAML::Node& node) const {
    if (!node.IsMap()) refuse(node, "expected an operation: a map with op and pattern");
    using Kind = SurgeryOp::Kind;
    static const std::map<std::string, Kind> kinds = {{"scale", Kind::scale},
                                                      {"add", Kind::add},
                                                      {"prune", Kind::prune},
                                                      {"replace", Kind::replace},
                                                      {"interpolate", Kind::interpolate}};
    const auto kind = kinds.find(required(node, "op"));
    if (kind == kinds.end()) refuse(node["op"], "op: expected scale, add, prune, replace or interpolate");
    SurgeryOp op;
    op.kind = kind->second;
    op.pattern = required(node, "pattern");
    op.line = node.Mark().line + 1;
    switch (op.kind) {
      case Kind::scale:
        allow(node, {"op", "pattern", "factor"});
        op.factor = number(node, "factor");
        break;
      case Kind::add: {
        allow(node, {"op", "pattern", "source", "alpha"});
        const double one = 1.0;
        op.source = source(node, "source");
        op.alpha = number(node, "alpha", &one);
        break;
      }
      case Kind::prune:
        prune(node, op);
        break;
      case Kind::replace:
        allow(node, {"op", "pattern", "source", "source_key"});
        op.source = source(node, "source");
        op.source_key = required(node, "source_key");
        if (count_wildcards(op.source_key, '*') != count_wildcards(op.pattern, '*'))
          refuse(node["source_key"], fmt::format("source_key: expected as many * as the pattern has ({})",
                                                 count_wildcards(op.pattern, '*')));
        break;
      case Kind::interpolate: {
        allow(node, {"op", "pattern", "source_a", "source_b", "ratio", "method"});
        op.source = source(node, "source_a");
        op.source_b = source(node, "source_b");
        op.ratio = number(node, "ratio");
        if (op.ratio < 0 || op.ratio > 1) refuse(node["ratio"], "ratio: expected 0 to 1");
        const std::string method = node["method"] ? text(node["method"], "method") : "lerp";
        if (method != "lerp" && method != "slerp") refuse(node["method"], "method: expected lerp or slerp");
        op.slerp = method == "slerp";
        break;
      }
    }
    return op;
  }

  void prune(const YAML::Node& node, SurgeryOp& op) const {
    const std::string grain = required(node, "granularity");
    const char* key = nullptr;
    if (grain == "attention_head") {
      op.grain = SurgeryOp::Grain::attention_head;
      key = "head_ids";
    } else if (grain == "layer") {
      op.grain = SurgeryOp::Grain::layer;
      key = "layer_ids";
    } else if (grain == "mlp_channel") {
      op.grain = SurgeryOp::Grain::mlp_channel;
      key = "channel_ids";
    } else {
      refuse(node["granularity"], "granularity: expected attention_head, layer or mlp_channel");
    }
    allow(node, {"op", "pattern", "granularity", key});
    op.ids = ids(node, key);
  }

  fs::path file_;
};

}  // namespace

std::string SurgeryOp::describe() const {
  static constexpr const char* kNames[] = {"scale", "add", "prune", "replace", "interpolate"};
  return fmt::format("surgery, line {} ({} {})", line, kNames[static_cast<int>(kind)], pattern);
}

Surgery read_surgery(const fs::path& file) { return Reader(file).read(); }

}  // namespace mlxcel
