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
      // Not \x: the library reads every hexadecimal digit that follows it.
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint8_t>(c));
    } else {
      out += c;
    }
  }
  out += '"';
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
