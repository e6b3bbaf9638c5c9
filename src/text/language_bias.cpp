#include "text/language_bias.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"

namespace mlxcel {
namespace {

struct Range {
  std::string_view script;
  uint32_t first, last;
};
// Blocks of the Unicode standard that hold one script's letters; punctuation and digits stay nobody's.
constexpr auto kRanges = std::to_array<Range>({
    {"latin", 'A', 'Z'},           {"latin", 'a', 'z'},          {"latin", 0xAA, 0xAA},
    {"latin", 0xBA, 0xBA},         {"latin", 0xC0, 0xD6},        {"latin", 0xD8, 0xF6},
    {"latin", 0xF8, 0x24F},        {"latin", 0x1E00, 0x1EFF},    {"latin", 0x2C60, 0x2C7F},
    {"latin", 0xFF21, 0xFF3A},     {"latin", 0xFF41, 0xFF5A},    {"greek", 0x370, 0x37D},
    {"greek", 0x37F, 0x3FF},       {"greek", 0x1F00, 0x1FFF},    {"cyrillic", 0x400, 0x52F},
    {"cyrillic", 0x1C80, 0x1C8F},  {"cyrillic", 0x2DE0, 0x2DFF}, {"cyrillic", 0xA640, 0xA69F},
    {"armenian", 0x530, 0x58F},    {"hebrew", 0x591, 0x5F4},     {"hebrew", 0xFB1D, 0xFB4F},
    {"arabic", 0x610, 0x61A},      {"arabic", 0x620, 0x65F},     {"arabic", 0x66E, 0x6FF},
    {"arabic", 0x750, 0x77F},      {"arabic", 0x8A0, 0x8FF},     {"arabic", 0xFB50, 0xFDFF},
    {"arabic", 0xFE70, 0xFEFC},    {"devanagari", 0x900, 0x963}, {"devanagari", 0x966, 0x97F},
    {"bengali", 0x980, 0x9FF},     {"gurmukhi", 0xA00, 0xA7F},   {"gujarati", 0xA80, 0xAFF},
    {"oriya", 0xB00, 0xB7F},       {"tamil", 0xB80, 0xBFF},      {"telugu", 0xC00, 0xC7F},
    {"kannada", 0xC80, 0xCFF},     {"malayalam", 0xD00, 0xD7F},  {"sinhala", 0xD80, 0xDFF},
    {"thai", 0xE01, 0xE3A},        {"thai", 0xE40, 0xE5B},       {"lao", 0xE80, 0xEFF},
    {"tibetan", 0xF00, 0xFFF},     {"myanmar", 0x1000, 0x109F},  {"georgian", 0x10A0, 0x10FF},
    {"georgian", 0x1C90, 0x1CBF},  {"ethiopic", 0x1200, 0x139F}, {"khmer", 0x1780, 0x17FF},
    {"mongolian", 0x1800, 0x18AF}, {"hangul", 0x1100, 0x11FF},   {"hangul", 0x3131, 0x318E},
    {"hangul", 0xA960, 0xA97F},    {"hangul", 0xAC00, 0xD7FF},   {"hangul", 0xFFA0, 0xFFDC},
    {"hiragana", 0x3041, 0x309F},  {"katakana", 0x30A1, 0x30FA}, {"katakana", 0x30FC, 0x30FF},
    {"katakana", 0x31F0, 0x31FF},  {"katakana", 0xFF66, 0xFF9D}, {"han", 0x2E80, 0x2FDF},
    {"han", 0x3005, 0x3007},       {"han", 0x3400, 0x4DBF},      {"han", 0x4E00, 0x9FFF},
    {"han", 0xF900, 0xFAFF},       {"han", 0x20000, 0x3FFFF},
});

struct Language {
  std::string_view codes;    // between blanks
  std::string_view scripts;  // likewise
};
constexpr auto kLanguages = std::to_array<Language>({
    {" en de fr es it pt nl sv no nb nn da fi is pl cs sk sl hr hu ro tr vi id ms tl sw af ca eu gl et lv lt "
     "sq mt ga cy la eo az uz ",
     " latin "},
    {" ru uk be bg mk sr kk ky tg mn ", " cyrillic "},
    {" zh ", " han "},
    {" ja ", " hiragana katakana han "},
    {" ko ", " hangul "},
    {" ar fa ur ps ckb ug sd ", " arabic "},
    {" he yi ", " hebrew "},
    {" el ", " greek "},
    {" hi mr ne sa ", " devanagari "},
    {" bn as ", " bengali "},
    {" pa ", " gurmukhi "},
    {" gu ", " gujarati "},
    {" or ", " oriya "},
    {" ta ", " tamil "},
    {" te ", " telugu "},
    {" kn ", " kannada "},
    {" ml ", " malayalam "},
    {" si ", " sinhala "},
    {" th ", " thai "},
    {" lo ", " lao "},
    {" bo dz ", " tibetan "},
    {" my ", " myanmar "},
    {" ka ", " georgian "},
    {" hy ", " armenian "},
    {" am ti ", " ethiopic "},
    {" km ", " khmer "},
});

std::string spaced(std::string_view word) { return " " + std::string(word) + " "; }

/// The scripts of a language or of a script's own name, between blanks; empty: unknown.
std::string scripts_of(std::string_view name) {
  for (const Range& range : kRanges)
    if (range.script == name) return spaced(name);
  for (const Language& language : kLanguages)
    if (name.size() >= 2 && language.codes.find(spaced(name)) != std::string_view::npos)
      return std::string(language.scripts);
  return "";
}

bool holds(const std::string& scripts, uint32_t character) {
  return std::any_of(kRanges.begin(), kRanges.end(), [&](const Range& r) {
    return character >= r.first && character <= r.last && scripts.find(spaced(r.script)) != std::string::npos;
  });
}

/// Whether characters from `first` to `last` are all of these scripts; ranges of one script may adjoin.
bool all_within(const std::string& scripts, uint32_t first, uint32_t last) {
  while (true) {
    const auto found = std::find_if(kRanges.begin(), kRanges.end(), [&](const Range& r) {
      return first >= r.first && first <= r.last && scripts.find(spaced(r.script)) != std::string::npos;
    });
    if (found == kRanges.end()) return false;
    if (found->last >= last) return true;
    first = found->last + 1;
  }
}

struct Characters {
  std::vector<uint32_t> whole;
  std::optional<std::pair<uint32_t, uint32_t>> begun;  // what a cut-off last character may still become
};

Characters read(std::string_view bytes) {
  Characters out;
  for (size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const size_t size = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
    if (size == 0) {  // the rest of a character, or nothing
      ++i;
      continue;
    }
    uint32_t value = size == 1 ? lead : lead & (0x7Fu >> size);
    size_t k = 1;
    for (; k < size && i + k < bytes.size(); ++k) {
      const auto next = static_cast<unsigned char>(bytes[i + k]);
      if ((next & 0xC0) != 0x80) break;
      value = value << 6 | (next & 0x3Fu);
    }
    if (k == size)
      out.whole.push_back(value);
    else if (i + k == bytes.size()) {
      const auto missing = static_cast<unsigned>(6 * (size - k));
      const uint32_t least = size == 3 ? 0x800 : size == 4 ? 0x10000 : 0x80;
      out.begun = {std::max(value << missing, least), (value << missing) | ((1u << missing) - 1)};
    }
    i += k;
  }
  return out;
}

}  // namespace

void check(const LanguageBias& bias, const std::string& param) {
  for (size_t i = 0; i < bias.languages.size(); ++i) {
    const auto& [name, value] = bias.languages[i];
    if (scripts_of(name).empty())
      fail_param(param, "{}: unknown language \"{}\": expected an ISO 639-1 code or a script's name", param,
                 name.substr(0, 32));
    if (std::isnan(value) || value == std::numeric_limits<float>::infinity())
      fail_param(param, "{}: {}: expected a finite value or -inf", param, name);
    for (size_t k = 0; k < i; ++k)
      if (bias.languages[k].first == name) fail_param(param, "{}: {} is given twice", param, name);
  }
}

LanguageBias parse_language_bias(std::string_view text, const std::string& param) {
  LanguageBias out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0)
      fail_param(param, "{}: expected LANG=VALUE, found \"{}\"", param, item.substr(0, 64));
    const std::string_view number = item.substr(equals + 1);
    float value = -std::numeric_limits<float>::infinity();
    if (number != "-inf") {
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
      if (error != std::errc() || end != number.data() + number.size() || !std::isfinite(value))
        fail_param(param, "{}: {}: expected a finite number or -inf, found \"{}\"", param,
                   item.substr(0, equals), number.substr(0, 32));
    }
    out.languages.emplace_back(item.substr(0, equals), value);
  }
  if (out.languages.empty()) fail_param(param, "{}: expected LANG=VALUE", param);
  check(out, param);
  return out;
}

std::vector<std::pair<int32_t, float>> token_biases(const LanguageBias& bias,
                                                    const std::vector<std::string>& tokens) {
  std::vector<std::string> scripts;
  for (const auto& [name, value] : bias.languages) scripts.push_back(scripts_of(name));
  std::vector<std::pair<int32_t, float>> out;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const Characters characters = read(tokens[id]);
    for (size_t l = 0; l < scripts.size(); ++l) {
      const bool spoken = std::any_of(characters.whole.begin(), characters.whole.end(),
                                      [&](uint32_t c) { return holds(scripts[l], c); });
      const bool begun = bias.strict && characters.begun &&
                         all_within(scripts[l], characters.begun->first, characters.begun->second);
      if (!spoken && !begun) continue;
      out.emplace_back(static_cast<int32_t>(id), bias.languages[l].second);
      break;
    }
  }
  return out;
}

}  // namespace mlxcel
