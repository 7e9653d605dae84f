#include "speculative/grammar/front_ends/regex_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "speculative/grammar/base/text_error.h"
#include "speculative/grammar/base/utf8_text.h"

namespace specd::grammar {
namespace {

bool IsDigit(uint32_t c) { return c >= '0' && c <= '9'; }
bool IsLetter(uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

int HexValue(uint32_t c) {
  if (IsDigit(c)) return static_cast<int>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<int>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<int>(c - 'A' + 10);
  return -1;
}

CharSet Digits() { return CharSet::Range('0', '9'); }

CharSet WordChars() {
  CharSet set = Digits();
  set.Add('a', 'z');
  set.Add('A', 'Z');
  set.Add('_', '_');
  return set;
}

// WhiteSpace and LineTerminator of ECMA-262; the category Zs is that of Unicode 6.3 and later.
CharSet Spaces() {
  CharSet set = CharSet::Range('\t', '\r');
  for (const uint32_t c : {0x20, 0xA0, 0x1680, 0x202F, 0x205F, 0x3000, 0xFEFF}) set.Add(c, c);
  set.Add(0x2000, 0x200A);
  set.Add(0x2028, 0x2029);
  return set;
}

std::optional<CharSet> NamedSet(uint32_t letter) {
  switch (letter) {
    case 'd':
      return Digits();
    case 'D':
      return Digits().Negated();
    case 'w':
      return WordChars();
    case 'W':
      return WordChars().Negated();
    case 's':
      return Spaces();
    case 'S':
      return Spaces().Negated();
    default:
      return std::nullopt;
  }
}

std::optional<uint32_t> ControlChar(uint32_t letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    default:
      return std::nullopt;
  }
}

RegexChars OneChar(uint32_t code_point) {
  return {.is_set = false, .set = {}, .code_point = code_point};
}

}  // namespace

bool RegexReader::Take(std::string_view text) {
  if (!NextIs(text)) return false;
  offset_ += text.size();
  return true;
}

uint32_t RegexReader::TakeChar() {
  const Utf8Char next = DecodeUtf8Char(pattern_, offset_);
  offset_ += next.size_bytes;
  return next.code_point;
}

uint32_t RegexReader::TakeNumber(uint32_t past) {
  uint64_t value = 0;
  while (NextIsDigit()) {
    value = std::min<uint64_t>(value * 10 + (TakeChar() - '0'), past);
  }
  return static_cast<uint32_t>(value);
}

absl::Status RegexReader::Invalid(size_t offset, std::string_view message) const {
  return TextError(absl::StatusCode::kInvalidArgument, "regex", pattern_, offset, message);
}

absl::Status RegexReader::Unsupported(size_t offset, std::string_view message) const {
  return TextError(absl::StatusCode::kUnimplemented, "regex", pattern_, offset, message);
}

absl::Status RegexReader::TooLarge(size_t offset, std::string_view message) const {
  return TextError(absl::StatusCode::kResourceExhausted, "regex", pattern_, offset, message);
}

absl::StatusOr<RegexChars> RegexReader::TakeEscape(bool is_in_class) {
  const size_t escape_offset = offset_;
  Take("\\");
  if (AtEnd()) {
    return Invalid(escape_offset,
                   R"(the pattern ends after a backslash; write \\ for a backslash)");
  }
  const uint32_t letter = TakeChar();
  if (std::optional<CharSet> set = NamedSet(letter)) {
    return RegexChars{.is_set = true, .set = *std::move(set)};
  }
  if (const std::optional<uint32_t> control = ControlChar(letter)) return OneChar(*control);
  if (letter == 'b' && is_in_class) return OneChar('\b');
  if (letter == 'c') {
    if (AtEnd() || !IsLetter(DecodeUtf8Char(pattern_, offset_).code_point)) {
      return Invalid(escape_offset,
                     R"(\c needs a letter from A to Z; write \\c for these two characters)");
    }
    return OneChar(TakeChar() % 32);
  }
  if (letter == '0') {
    if (NextIsDigit()) {
      return Invalid(
          escape_offset,
          R"(an octal escape means different characters in different dialects; write \xHH)");
    }
    return OneChar(0);
  }
  if (letter == 'x' || letter == 'u') {
    const absl::StatusOr<uint32_t> code_point =
        letter == 'x' ? TakeHex(escape_offset, 2) : TakeUnicode(escape_offset);
    if (!code_point.ok()) return code_point.status();
    return OneChar(*code_point);
  }
  if (IsLetter(letter) || IsDigit(letter)) return RefuseEscape(escape_offset, letter, is_in_class);
  return OneChar(letter);  // punctuation stands for itself
}

absl::Status RegexReader::RefuseEscape(size_t escape_offset, uint32_t letter,
                                       bool is_in_class) const {
  if (letter == 'p' || letter == 'P') {
    return Unsupported(
        escape_offset,
        R"(unsupported \p: classes by Unicode property; write the ranges, as [a-zA-Z])");
  }
  if (!is_in_class) {
    if (letter == 'b' || letter == 'B') {
      return Unsupported(
          escape_offset,
          fmt::format(R"(unsupported \{}: word boundaries; write the characters that )"
                      "may come before and after",
                      static_cast<char>(letter)));
    }
    if (IsDigit(letter) || letter == 'k') {
      return Unsupported(escape_offset,
                         "unsupported backreference; write the group's pattern once more if any "
                         "text of it may come here");
    }
    if (letter == 'A' || letter == 'Z' || letter == 'z' || letter == 'G') {
      return Unsupported(escape_offset,
                         fmt::format(R"(unsupported \{}: anchors of other dialects; write ^ or $)",
                                     static_cast<char>(letter)));
    }
  }
  return Invalid(escape_offset,
                 fmt::format("there is no escape \\{0}; write {0} for the character itself",
                             static_cast<char>(letter)));
}

absl::StatusOr<uint32_t> RegexReader::TakeHex(size_t escape_offset, int num_digits) {
  uint32_t value = 0;
  for (int i = 0; i < num_digits; ++i) {
    const int digit = AtEnd() ? -1 : HexValue(static_cast<uint8_t>(pattern_[offset_]));
    if (digit < 0) {
      return Invalid(escape_offset,
                     fmt::format("the escape needs {} hexadecimal digits", num_digits));
    }
    value = value * 16 + static_cast<uint32_t>(digit);
    ++offset_;
  }
  return value;
}

absl::StatusOr<uint32_t> RegexReader::TakeUnicode(size_t escape_offset) {
  if (Take("{")) {
    uint32_t value = 0;
    const size_t digits_offset = offset_;
    while (!AtEnd() && HexValue(static_cast<uint8_t>(pattern_[offset_])) >= 0) {
      value = value * 16 + static_cast<uint32_t>(HexValue(static_cast<uint8_t>(pattern_[offset_])));
      value = std::min(value, kCharMax + 1);
      ++offset_;
    }
    const bool has_digits = offset_ > digits_offset;
    if (!has_digits || !Take("}") || value > kCharMax || IsSurrogate(value)) {
      return Invalid(escape_offset,
                     R"(\u{...} needs the hexadecimal number of a character: 0 to 10FFFF, and )"
                     "none of the surrogates D800 to DFFF");
    }
    return value;
  }
  const absl::StatusOr<uint32_t> unit = TakeHex(escape_offset, 4);
  if (!unit.ok() || !IsSurrogate(*unit)) return unit;
  if (*unit < 0xDC00 && Take("\\u") && !NextIs("{")) {
    const absl::StatusOr<uint32_t> low = TakeHex(escape_offset, 4);
    if (!low.ok()) return low;
    if (*low >= 0xDC00 && *low <= 0xDFFF) {
      return 0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00);
    }
  }
  return Invalid(escape_offset,
                 "half of a surrogate pair is no character; write both halves, or the character "
                 R"(as \u{...})");
}

absl::StatusOr<RegexChars> RegexReader::TakeClassItem() {
  if (NextIs("\\")) return TakeEscape(/*is_in_class=*/true);
  if (NextIs("[:") || NextIs("[.") || NextIs("[=")) {
    return Unsupported(offset_,
                       R"(unsupported POSIX class; write the ranges, or \[ for a bracket)");
  }
  return OneChar(TakeChar());
}

absl::StatusOr<CharSet> RegexReader::TakeClass() {
  const size_t class_offset = offset_;
  Take("[");
  const bool is_negated = Take("^");
  if (NextIs("]")) {
    return Invalid(class_offset,
                   "the class is empty, which dialects read differently; write \\] for a bracket");
  }
  CharSet set;
  while (!Take("]")) {
    if (AtEnd()) return Invalid(class_offset, "the class has no end; write ] after its last item");
    const size_t item_offset = offset_;
    absl::StatusOr<RegexChars> first = TakeClassItem();
    if (!first.ok()) return first.status();
    const bool is_range = NextIs("-") && !NextIs("-]") && offset_ + 1 < pattern_.size();
    if (!is_range) {
      first->is_set ? set.Add(first->set) : set.Add(first->code_point, first->code_point);
      continue;
    }
    Take("-");
    const absl::StatusOr<RegexChars> last = TakeClassItem();
    if (!last.ok()) return last.status();
    if (first->is_set || last->is_set) {
      return Invalid(item_offset, R"(a class as \d is no end of a range; write \- for a hyphen)");
    }
    if (first->code_point > last->code_point) {
      return Invalid(item_offset, "the range ends before it begins; exchange its ends");
    }
    set.Add(first->code_point, last->code_point);
  }
  return is_negated ? set.Negated() : set;
}

}  // namespace specd::grammar
