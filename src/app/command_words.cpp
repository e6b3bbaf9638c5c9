#include "app/command_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>

#include "app/flags/shared.h"
#include "app/options.h"

namespace mlxcel::app {
namespace {

std::map<std::pair<const CLI::App*, std::string>, std::string> one_dash_spellings;
std::map<std::string, std::string> typed_names;  // of this command line: a flag's name, as it was spelled

/// The long flag that a word with one dash and several letters stands for; the word itself otherwise.
std::string long_spelling(const CLI::App& app, const std::string& word) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kSpellings = {{
      {"-sys", "--system"},
      {"-jf", "--json-schema-file"},
      {"-md", "--draft-model"},
      {"-pg", "--pg"},
      {"-hff", "--hf-file"},
      {"-ctk", "--cache-type-k"},
      {"-ctv", "--cache-type-v"},
      {"-hft", "--hf-token"},
  }};
  if (const auto known = one_dash_spellings.find({&app, word}); known != one_dash_spellings.end())
    return known->second;
  for (const auto& [from, to] : kSpellings)
    if (word == from && app.get_option_no_throw(std::string(to))) return std::string(to);
  return word;
}

/// The first long spelling; CLI11 itself has no name for what help does not show.
std::string name_of(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  return option.get_snames().empty() ? option.get_single_name() : "-" + option.get_snames().front();
}

enum class Form { any, whole, real, named };

Form form_of(const CLI::Option& option) {
  if (option.get_positional()) return Form::named;
  if (option.get_items_expected_max() == 0 || option.get_expected_min() == 0) return Form::any;
  const std::string type = value_of(option);
  const auto is = [&](std::initializer_list<std::string_view> types) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  if (is({"REF", "PATH", "FILE", "DIR", "REV", "JSON", "GBNF", "PATTERN", "GLOB"})) return Form::named;
  if (shared_row(&option)) return Form::any;
  if (is({"N", "INT"}) || (!type.empty() && std::isdigit(static_cast<unsigned char>(type[0]))))
    return Form::whole;
  return is({"FLOAT", "SECONDS"}) ? Form::real : Form::any;
}

/// std::from_chars knows neither spaces nor other bases, nor "+".
template <class Number>
bool reads_as(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() &&
         std::isfinite(static_cast<double>(number));
}

void check(const std::string& name, Form form, const std::string& text) {
  const char* wanted = nullptr;
  if (form == Form::named && text.empty()) wanted = "something; leave the flag out for its default";
  if (form == Form::whole && !reads_as<int>(text)) wanted = "a whole number in decimal digits";
  if (form == Form::real && !reads_as<double>(text)) wanted = "a number";
  if (!wanted) return;
  throw UsageError(fmt::format("{}: expected {}, found \"{}\"", as_typed(name), wanted, text.substr(0, 80)));
}

/// "--json=maybe": CLI11 takes any number for a yes, also with something behind it.
void check_switch(const std::string& typed, std::string value) {
  static constexpr std::array<std::string_view, 8> kWords = {"true", "false", "1",  "0",
                                                             "yes",  "no",    "on", "off"};
  const std::string found = value.substr(0, 80);
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::find(kWords.begin(), kWords.end(), value) == kWords.end())
    throw UsageError(fmt::format("{}: expected true or false, found \"{}\"", typed, found));
}

/// "-max-tokens" would be -m with the value "ax-tokens".
void check_dashes(const CLI::App& app, const std::string& typed) {
  if (typed.size() > 2 && typed[1] != '-' && app.get_option_no_throw("-" + typed))
    throw UsageError(fmt::format("{}: no such option; did you mean -{}? See --help", typed, typed));
}

}  // namespace

void one_dash_spelling(const CLI::App& app, const std::string& spelling, const std::string& flag) {
  one_dash_spellings[{&app, spelling}] = flag;
}

std::vector<std::string> command_words(const CLI::App& app, int argc, char** argv) {
  typed_names.clear();
  std::vector<std::string> out;
  bool value = false, verbatim = false;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (value || verbatim || word.size() < 2 || word[0] != '-') {
      value = false;
      out.push_back(std::move(word));
      continue;
    }
    verbatim = word == "--";
    const auto equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const std::string typed = word.substr(0, equals);
    if (equals == std::string::npos) word = long_spelling(app, word);
    if (word[1] != '-') check_dashes(app, word.substr(0, word.find('=')));
    // "-n5": a letter and its value.
    const std::string name = word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option) typed_names[name_of(*option)] = word.starts_with("--") ? typed : typed.substr(0, 2);
    const bool takes = option && option->get_expected_min() > 0;
    if (option && option->get_items_expected_max() == 0 && equals != std::string::npos)
      check_switch(typed, word.substr(equals + 1));
    value = takes && equals == std::string::npos && word == name;
    const bool empty = takes && equals != std::string::npos && equals + 1 == word.size();
    out.push_back(empty ? name : std::move(word));
    if (empty) out.emplace_back();
  }
  return out;
}

std::string as_typed(const std::string& name) {
  const auto found = typed_names.find(name);
  return found == typed_names.end() ? name : found->second;
}

std::string with_typed_names(const CLI::App& app, std::string message) {
  for (const CLI::Option* option : app.get_options({})) {
    const std::string name = name_of(*option), typed = as_typed(name);
    if (name == typed) continue;
    const auto at = message.find(name);
    const size_t end = at + name.size();
    const bool whole = at != std::string::npos && (end == message.size() || message[end] == ':' ||
                                                   std::isspace(static_cast<unsigned char>(message[end])));
    if (whole) message.replace(at, name.size(), typed);
  }
  return message;
}

void check_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options({})) {
    const Form form = form_of(*option);
    if (form == Form::any) continue;
    option->check([name = name_of(*option), form](const std::string& text) {
      check(name, form, text);
      return std::string();
    });
  }
}

}  // namespace mlxcel::app
