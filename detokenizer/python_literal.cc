#include "detokenizer/python_literal.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/numbers.h"

namespace specd {
namespace {

void AppendUtf8(uint32_t code_point, std::string* text) {
  const auto append = [text](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  const auto tail = [&](int shift) { append(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    append(code_point);
  } else if (code_point < 0x800) {
    append(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    append(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    append(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

bool IsCharacter(uint32_t value) { return value < 0xD800 || (value > 0xDFFF && value <= 0x10FFFF); }

// Takes an escape such as \xE4, whose backslash is gone, off the front of `rest`.
bool TakeEscape(std::string_view* rest, bool is_bytes, std::string* text) {
  if (rest->empty()) return false;
  const char kind = rest->front();
  rest->remove_prefix(1);
  constexpr std::string_view kSimple = "\\\\''\"\"n\nr\rt\t";
  for (size_t i = 0; i < kSimple.size(); i += 2) {
    if (kind != kSimple[i]) continue;
    text->push_back(kSimple[i + 1]);
    return true;
  }
  const size_t num_digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
  const std::string_view digits = rest->substr(0, num_digits);
  uint32_t value = 0;
  if (num_digits == 0 || digits.size() < num_digits || (is_bytes && kind != 'x') ||
      digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos ||
      !absl::SimpleHexAtoi(absl::string_view(digits.data(), digits.size()), &value)) {
    return false;
  }
  rest->remove_prefix(num_digits);
  if (is_bytes) {
    text->push_back(static_cast<char>(value));
    return true;
  }
  if (!IsCharacter(value)) return false;
  AppendUtf8(value, text);
  return true;
}

}  // namespace

std::optional<std::string> ParsePythonLiteral(std::string_view literal) {
  const bool is_bytes = !literal.empty() && literal.front() == 'b';
  if (is_bytes) literal.remove_prefix(1);
  if (literal.size() < 2) return std::nullopt;
  const char quote = literal.front();
  if ((quote != '\'' && quote != '"') || literal.back() != quote) return std::nullopt;
  std::string_view rest = literal.substr(1, literal.size() - 2);
  std::string text;
  while (!rest.empty()) {
    const char character = rest.front();
    rest.remove_prefix(1);
    if (character == '\\') {
      if (!TakeEscape(&rest, is_bytes, &text)) return std::nullopt;
    } else if (character == quote || (is_bytes && static_cast<uint8_t>(character) >= 0x80)) {
      return std::nullopt;
    } else {
      text.push_back(character);
    }
  }
  return text;
}

}  // namespace specd
