#include "app/flags/shared.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "app/command_words.h"

namespace mlxcel::app {
namespace {

/// What CLI11 takes: long names and single letters. Letters in a row after one dash are kept apart.
struct Names {
  std::vector<std::string> plain, one_dash;
};

Names names_of(const Flag& row, const char* spellings) {
  Flag chosen = row;
  if (spellings) chosen.names = spellings;
  Names out;
  for (const auto& [spelling, on] : chosen.spellings()) {
    const bool odd = !spelling.starts_with("--") && spelling.size() > 2;
    (odd ? out.one_dash : out.plain).push_back((on ? "" : "!") + spelling);
  }
  return out;
}

/// A value taken by a row whose errors say the name that was typed; `name` is the option's first long one.
void apply_typed(FlagState& state, const Flag& row, const std::string& name, const std::string& value) {
  Flag typed = row;
  typed.names = as_typed(name);
  row.apply(state, typed, value);
}

std::map<const CLI::Option*, const Flag*>& rows() {
  static std::map<const CLI::Option*, const Flag*> all;
  return all;
}

}  // namespace

const Flag* shared_row(const CLI::Option* option) {
  const auto found = rows().find(option);
  return found == rows().end() ? nullptr : found->second;
}

std::string value_of(const CLI::Option& option) {
  if (const Flag* row = shared_row(&option)) return row->type;
  if (option.get_items_expected_max() == 0) return "";
  // CLI11 has choices as "TEXT:{a,b}" and checks of its own as "TEXT:FILE" or "INT in [1 - 9]".
  std::string type = option.get_type_name();
  const auto open = type.find(":{"), close = type.rfind('}');
  if (open != std::string::npos && close != std::string::npos) {
    type = type.substr(open + 2, close - open - 2);
    std::replace(type.begin(), type.end(), ',', '|');
    return type;
  }
  for (size_t at = type.find(':'); at != std::string::npos; at = type.find(':', at + 1))
    if (at == 0 || type[at - 1] != '[') return type.substr(0, at);  // "BITS[:GROUP]" is a type's own
  return type.substr(0, type.find(" in ["));
}

const Flag* find_flag(const std::string& spelling) {
  for (const auto* table : {&server_flags(), &offline_flags()})
    for (const Flag& row : *table)
      for (const auto& [name, on] : row.spellings())
        if (name == spelling) return &row;
  return nullptr;
}

SharedFlags::SharedFlags(CLI::App& app, FlagState& state) : app_(app), state_(state) {
  app.final_callback([this] { read_variables(); });
}

void SharedFlags::add(const char* group, std::initializer_list<SharedFlag> flags) {
  for (const SharedFlag& flag : flags) {
    const Flag* row = find_flag(flag.name);
    if (!row) throw std::logic_error(fmt::format("{}: no such row", flag.name));
    const Names names = names_of(*row, flag.spellings);
    const std::string spelled = fmt::format("{}", fmt::join(names.plain, ","));
    const std::string help = flag.help ? flag.help : row->help;
    const auto first = std::find_if(names.plain.begin(), names.plain.end(),
                                    [](const std::string& each) { return each.starts_with("--"); });
    const std::string name = first == names.plain.end() ? row->name() : *first;
    CLI::Option* option = nullptr;
    FlagState& state = state_;
    if (row->kind == Flag::Kind::toggle) {
      option = app_.add_flag_function(
          spelled, [row, &state](std::int64_t n) { row->apply(state, *row, n > 0 ? "true" : "false"); },
          help);
    } else if (row->kind == Flag::Kind::list) {
      option = app_.add_option_function<std::vector<std::string>>(
          spelled,
          [row, name, &state](const std::vector<std::string>& values) {
            for (const std::string& value : values) apply_typed(state, *row, name, value);
          },
          help);
      option->take_all();
    } else {
      option = app_.add_option_function<std::string>(
          spelled, [row, name, &state](const std::string& value) { apply_typed(state, *row, name, value); },
          help);
    }
    if (row->kind != Flag::Kind::toggle) option->type_name(row->type);
    option->group(group);
    for (const std::string& odd : names.one_dash) one_dash_spelling(app_, odd, row->name());
    added_.push_back({row, option});
    rows()[option] = row;
  }
}

SharedFlags::~SharedFlags() {
  for (const Added& each : added_) rows().erase(each.option);
}

void SharedFlags::read_variables() {
  for (const auto& [row, option] : added_)
    if (option->count() == 0) read_own_variable(*row, state_);
}

}  // namespace mlxcel::app
