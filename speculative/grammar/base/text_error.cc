#include "speculative/grammar/base/text_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/core/check.h"

namespace specd::grammar {
namespace {

// The characters that are shown on each side of the caret.
constexpr size_t kShownCharsMax = 40;

bool IsInsideCharacter(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !IsInsideCharacter(byte); }));
}

// The last `count` characters.
std::string_view LastCharacters(std::string_view text, size_t count) {
  size_t begin = text.size();
  while (begin > 0 && count > 0) {
    if (!IsInsideCharacter(text[--begin])) --count;
  }
  return text.substr(begin);
}

std::string_view FirstCharacters(std::string_view text, size_t count) {
  size_t end = 0;
  while (end < text.size() && (count > 0 || IsInsideCharacter(text[end]))) {
    if (!IsInsideCharacter(text[end++])) --count;
  }
  return text.substr(0, end);
}

}  // namespace

absl::Status TextError(absl::StatusCode code, std::string_view what, std::string_view text,
                       size_t offset, std::string_view message) {
  SPECD_CHECK(offset <= text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const std::string_view left =
      newline == std::string_view::npos ? before : before.substr(newline + 1);
  std::string_view right = text.substr(offset);
  right = right.substr(0, right.find_first_of("\r\n"));

  const std::string_view shown_left = LastCharacters(left, kShownCharsMax);
  std::string shown = fmt::format("{}{}", shown_left, FirstCharacters(right, kShownCharsMax));
  for (char& byte : shown) {
    if (static_cast<uint8_t>(byte) < 0x20 || byte == 0x7F) byte = ' ';
  }
  return absl::Status(code, fmt::format("{}, line {}, column {}: {}\n  {}\n  {:>{}}", what, line,
                                        CountCharacters(left) + 1, message, shown, '^',
                                        CountCharacters(shown_left) + 1));
}

}  // namespace specd::grammar
