// Lines of Prometheus' text format. Thread: any.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>

namespace mlxcel::metric_text {

inline void head(std::string& out, const std::string& name, const std::string& help, const char* kind) {
  fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind);
}

template <class T>
void scalar(std::string& out, const std::string& name, const std::string& help, const char* kind, T value) {
  head(out, name, help, kind);
  fmt::format_to(std::back_inserter(out), "{} {}\n", name, value);
}

/// One value of a family with a label, below its head(). `value` needs no escapes.
template <class T>
void labelled(std::string& out, const std::string& name, const char* label, const std::string& value,
              T number) {
  fmt::format_to(std::back_inserter(out), "{}{{{}=\"{}\"}} {}\n", name, label, value, number);
}

}  // namespace mlxcel::metric_text
