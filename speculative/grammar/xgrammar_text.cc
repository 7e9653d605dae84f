#include "speculative/grammar/xgrammar_text.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cstdint>
#include <iterator>

#include "speculative/grammar/xgrammar_json.h"

namespace specd::grammar {
namespace {

using simdjson::dom::element;

// A literal of the library's EBNF. Text beyond ASCII is valid UTF-8, because it came from JSON.
void AppendLiteral(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint8_t>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

absl::Status CheckString(const element& value, const std::string& pointer) {
  if (value.is_string()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("structural tag: {} must be a string, not {}", pointer, simdjson::minify(value)));
}

// The object with its members `begin`, `schema` and `end`.
absl::StatusOr<std::string> TagToXgrammar(const element& tag, const std::string& pointer,
                                          SchemaToEbnf to_ebnf) {
  element begin;
  element schema;
  element end;
  if (tag["begin"].get(begin) || tag["schema"].get(schema) || tag["end"].get(end)) {
    return absl::InvalidArgumentError(
        fmt::format("structural tag: {} must be an object with begin, schema and end", pointer));
  }
  for (const auto& [value, name] : {std::pair{begin, "/begin"}, std::pair{end, "/end"}}) {
    if (absl::Status status = CheckString(value, pointer + name); !status.ok()) return status;
  }
  absl::StatusOr<std::string> ebnf = to_ebnf(simdjson::minify(schema), pointer + "/schema");
  if (!ebnf.ok()) return ebnf.status();
  return fmt::format(
      R"({{"type":"tag","begin":{},"content":{{"type":"grammar","grammar":{}}},"end":{}}})",
      simdjson::minify(begin), ToJsonString(*ebnf), simdjson::minify(end));
}

class GroupDepth {
 public:
  absl::Status Count(char c) {
    if (c == ')' && depth_ > 0) --depth_;
    if (c == '(') ++depth_;
    if (depth_ <= kGroupDepthMax) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        fmt::format("the groups of the text are nested deeper than {} levels", kGroupDepthMax));
  }

 private:
  size_t depth_ = 0;
};

}  // namespace

absl::StatusOr<std::string> ChoiceToEbnf(std::string_view text) {
  JsonDocument document;
  if (absl::Status status = document.Parse(text, "choice"); !status.ok()) return status;
  simdjson::dom::array choices;
  if (document.root().get(choices) || choices.size() == 0) {
    return absl::InvalidArgumentError(
        "choice: the text must be a JSON array with at least one string");
  }
  std::string ebnf = "root ::= ";
  size_t index = 0;
  for (const element choice : choices) {
    std::string_view literal;
    if (choice.get(literal)) {
      return absl::InvalidArgumentError(
          fmt::format("choice: /{} must be a string, not {}", index, simdjson::minify(choice)));
    }
    if (index > 0) ebnf += " | ";
    AppendLiteral(literal, ebnf);
    ++index;
  }
  return ebnf;
}

absl::StatusOr<std::string> StructuralTagToXgrammar(std::string_view text, SchemaToEbnf to_ebnf) {
  JsonDocument document;
  if (absl::Status status = document.Parse(text, "structural tag"); !status.ok()) return status;
  const element root = document.root();
  simdjson::dom::array tags;
  simdjson::dom::array triggers;
  // vLLM calls the tags "structures".
  std::string_view tags_name = "tags";
  if (root["tags"].get(tags)) {
    tags_name = "structures";
    if (root["structures"].get(tags)) {
      return absl::InvalidArgumentError(
          "structural tag: the text must be a JSON object with an array tags");
    }
  }
  if (root["triggers"].get(triggers)) {
    return absl::InvalidArgumentError(
        "structural tag: the text must be a JSON object with an array triggers");
  }
  std::string out = R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":[)";
  size_t index = 0;
  for (const element trigger : triggers) {
    const std::string pointer = fmt::format("/triggers/{}", index);
    if (absl::Status status = CheckString(trigger, pointer); !status.ok()) return status;
    if (index++ > 0) out += ',';
    out += simdjson::minify(trigger);
  }
  out += R"(],"tags":[)";
  index = 0;
  for (const element tag : tags) {
    absl::StatusOr<std::string> converted =
        TagToXgrammar(tag, fmt::format("/{}/{}", tags_name, index), to_ebnf);
    if (!converted.ok()) return converted.status();
    if (index++ > 0) out += ',';
    out += *converted;
  }
  out += R"(],"at_least_one":false,"stop_after_first":false}})";
  return out;
}

absl::Status CheckPattern(std::string_view pattern) {
  bool in_class = false;
  GroupDepth depth;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const std::string_view rest = pattern.substr(i);
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (rest.starts_with("(?=") || rest.starts_with("(?!") || rest.starts_with("(?<=") ||
               rest.starts_with("(?<!")) {
      return absl::UnimplementedError(fmt::format(
          "unsupported lookaround at offset {} of the pattern: xgrammar ignores it. Remove it", i));
    } else if ((c == '^' && i > 0) || (c == '$' && i + 1 < pattern.size())) {
      return absl::UnimplementedError(fmt::format(
          "unsupported anchor {} at offset {} of the pattern: xgrammar ignores it except at the "
          "ends. Remove it",
          c, i));
    } else if (absl::Status status = depth.Count(c); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckEbnf(std::string_view text) {
  // The character that ends the literal, class or comment that the scan is in; 0 outside of them.
  char end = 0;
  GroupDepth depth;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && end != '\n') {
      ++i;
    } else if (end != 0) {
      if (c == end) end = 0;
    } else if (c == '"' || c == '\'') {
      end = c;
    } else if (c == '[') {
      end = ']';
    } else if (c == '#') {
      end = '\n';
    } else if (absl::Status status = depth.Count(c); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

std::string_view TrimError(std::string_view text) {
  for (const std::string_view suffix : {".cc:", ".h:"}) {
    const size_t file = text.find(suffix);
    if (file == text.npos) continue;
    const size_t line_end = text.find(": ", file + suffix.size());
    if (line_end != text.npos) text.remove_prefix(line_end + 2);
    break;
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

}  // namespace specd::grammar
