#include "speculative/grammar/front_ends/ebnf_lexer.h"

#include <fmt/format.h>

#include <utility>

#include "speculative/grammar/base/text_error.h"
#include "speculative/grammar/base/utf8_text.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {
namespace {

constexpr std::string_view kWhat = "grammar";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '-' || c == '_';
}

// The value of a hexadecimal digit, or -1.
int HexValue(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The character of a backslash and `c`, or -1. xgrammar reads the letters and \0 as C does, and
// punctuation in classes. GBNF reads some of them. No letter means two things.
int SimpleEscape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'e':
      return 0x1B;
    case '0':
      return 0;
    default:
      return c != '\0' && std::string_view("\\\"'?/^$.*+()[]{}|-").find(c) != std::string_view::npos
                 ? c
                 : -1;
  }
}

}  // namespace

absl::Status EbnfLexer::Invalid(size_t offset, std::string_view message) const {
  return TextError(absl::StatusCode::kInvalidArgument, kWhat, text_, offset, message);
}

absl::Status EbnfLexer::Unsupported(size_t offset, std::string_view message) const {
  return TextError(absl::StatusCode::kUnimplemented, kWhat, text_, offset, message);
}

// Blanks are spaces, tabs, ends of lines and comments.
void EbnfLexer::SkipBlanks() {
  while (!IsAtEnd()) {
    const char c = Peek();
    if (c == '#') {
      while (!IsAtEnd() && Peek() != '\n' && Peek() != '\r') ++offset_;
    } else if (c == '\n' || c == '\r') {
      begins_line_ = true;
      ++offset_;
    } else if (c == ' ' || c == '\t') {
      ++offset_;
    } else {
      return;
    }
  }
}

absl::StatusOr<EbnfToken> EbnfLexer::Next() {
  SkipBlanks();
  EbnfToken token;
  token.offset = offset_;
  token.begins_line = std::exchange(begins_line_, false);
  if (IsAtEnd()) return token;
  if (absl::Status status = ReadToken(&token); !status.ok()) return status;
  token.source = text_.substr(token.offset, offset_ - token.offset);
  return token;
}

absl::Status EbnfLexer::ReadToken(EbnfToken* token) {
  const char c = Peek();
  if (c == '"') return ReadLiteral(token);
  if (c == '[') return ReadClass(token);
  if (c == '{') return ReadRange(token);
  if (IsNameChar(c)) return ReadName(token);
  return ReadSymbol(token);
}

absl::Status EbnfLexer::ReadSymbol(EbnfToken* token) {
  const size_t begin = offset_++;
  switch (text_[begin]) {
    case '|':
      token->kind = EbnfTokenKind::kAlternate;
      return absl::OkStatus();
    case '(':
      if (Peek() == '=') {
        return Unsupported(
            begin, "unsupported lookahead (= ...): write what follows into the rule itself");
      }
      token->kind = EbnfTokenKind::kOpen;
      return absl::OkStatus();
    case ')':
      token->kind = EbnfTokenKind::kClose;
      return absl::OkStatus();
    case '*':
    case '+':
    case '?':
      token->kind = EbnfTokenKind::kRepeat;
      token->min = text_[begin] == '+' ? 1 : 0;
      token->max = text_[begin] == '?' ? 1 : kUnbounded;
      return absl::OkStatus();
    case '.':
      // xgrammar takes a dot for a letter of a name.
      if (IsNameChar(Peek())) {
        return Invalid(begin,
                       "a dot touches a name: llama.cpp reads any character, xgrammar a name with "
                       "a dot; put a space between them, or rename the rule");
      }
      token->kind = EbnfTokenKind::kClass;
      token->set = CharSet::All();
      return absl::OkStatus();
    case ':':
      if (Peek() == ':' && Peek(1) == '=') {
        offset_ += 2;
        token->kind = EbnfTokenKind::kAssign;
        return absl::OkStatus();
      }
      return Invalid(begin, "a colon stands alone; a rule is written name ::= body");
    case '<':
    case '!':
      return Unsupported(begin,
                         "unsupported token reference of llama.cpp: write the token's text in "
                         "double quotes");
    case '/':
      return Unsupported(begin,
                         "unsupported /pattern/: write it with classes and repetitions, or use "
                         "the regex constraint");
    default:
      return Invalid(begin,
                     "no item begins with this character; an item is a name, a \"text\", a "
                     "[class], a dot, or a group in parentheses");
  }
}

absl::Status EbnfLexer::ReadName(EbnfToken* token) {
  while (IsNameChar(Peek())) ++offset_;
  token->kind = EbnfTokenKind::kName;
  if (Peek() != '.') return absl::OkStatus();
  return Invalid(offset_,
                 "a dot touches a name: llama.cpp reads any character, xgrammar a name with a "
                 "dot; put a space between them, or rename the rule");
}

absl::Status EbnfLexer::ReadLiteral(EbnfToken* token) {
  const size_t begin = offset_++;
  while (Peek() != '"') {
    if (IsAtEnd() || Peek() == '\n' || Peek() == '\r') {
      return Invalid(begin,
                     "the text has no closing quote on its line; add the quote, and write \\n for "
                     "a line end");
    }
    const absl::StatusOr<uint32_t> code_point = ReadCharacter();
    if (!code_point.ok()) return code_point.status();
    AppendUtf8(*code_point, &token->literal);
  }
  ++offset_;
  token->kind = EbnfTokenKind::kLiteral;
  return absl::OkStatus();
}

// A dash stands for itself where no range can be: first, last, and after a range.
absl::Status EbnfLexer::ReadClass(EbnfToken* token) {
  const size_t begin = offset_++;
  const bool is_negated = Peek() == '^';
  if (is_negated) ++offset_;
  if (Peek() == ']') {
    return Invalid(begin,
                   "the class is empty; write . for any character, or \\] for a bracket in a "
                   "class");
  }
  while (Peek() != ']') {
    if (IsAtEnd() || Peek() == '\n' || Peek() == '\r') {
      return Invalid(begin,
                     "the class has no closing bracket on its line; add the bracket, and write "
                     "\\n for a line end");
    }
    const size_t first_begin = offset_;
    const absl::StatusOr<uint32_t> first = ReadCharacter();
    if (!first.ok()) return first.status();
    uint32_t last_value = *first;
    const bool is_range = Peek() == '-' && Peek(1) != ']' && Peek(1) != '\n' && Peek(1) != '\r' &&
                          offset_ + 1 < text_.size();
    if (is_range) {
      ++offset_;
      const absl::StatusOr<uint32_t> last = ReadCharacter();
      if (!last.ok()) return last.status();
      last_value = *last;
    }
    if (last_value < *first) {
      return Invalid(first_begin, "the range's first character is after its last; exchange them");
    }
    token->set.Add(*first, last_value);
  }
  ++offset_;
  if (is_negated) token->set = token->set.Negated();
  token->kind = EbnfTokenKind::kClass;
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> EbnfLexer::ReadCount() {
  const size_t begin = offset_;
  uint32_t count = 0;
  while (IsDigit(Peek())) {
    count = count * 10 + static_cast<uint32_t>(Peek() - '0');
    ++offset_;
    if (count > kEbnfRepeatMax) {
      return TextError(absl::StatusCode::kResourceExhausted, kWhat, text_, begin,
                       fmt::format("the count is past {}, the most that specd repeats; write * or "
                                   "{{m,}} for no bound",
                                   kEbnfRepeatMax));
    }
  }
  if (offset_ == begin) {
    return Invalid(begin, "a repetition is {m}, {m,} or {m,n}; write {0,n} for at most n");
  }
  return count;
}

absl::Status EbnfLexer::ReadRange(EbnfToken* token) {
  const size_t begin = offset_++;
  SkipBlanks();
  absl::StatusOr<uint32_t> count = ReadCount();
  if (!count.ok()) return count.status();
  token->min = *count;
  token->max = *count;
  SkipBlanks();
  if (Peek() == ',') {
    ++offset_;
    SkipBlanks();
    if (Peek() == '-' && Peek(1) == '1' && !IsDigit(Peek(2))) {  // as xgrammar prints {m,}
      offset_ += 2;
      token->max = kUnbounded;
    } else if (Peek() == '}') {
      token->max = kUnbounded;
    } else {
      count = ReadCount();
      if (!count.ok()) return count.status();
      token->max = *count;
    }
    SkipBlanks();
  }
  if (Peek() != '}') {
    return Invalid(offset_, "the repetition has no closing brace here; write {m}, {m,} or {m,n}");
  }
  ++offset_;
  if (token->max < token->min) {
    return Invalid(begin, fmt::format("the repetition is {} to {} times; exchange the counts",
                                      token->min, token->max));
  }
  begins_line_ = false;
  token->kind = EbnfTokenKind::kRepeat;
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> EbnfLexer::ReadCharacter() {
  if (Peek() == '\\') return ReadEscape();
  const Utf8Char character = DecodeUtf8Char(text_, offset_);
  offset_ += character.size_bytes;
  return character.code_point;
}

absl::StatusOr<uint32_t> EbnfLexer::ReadEscape() {
  const size_t begin = offset_;
  const char letter = Peek(1);
  if (letter == 'x' || letter == 'u' || letter == 'U') return ReadHexEscape();
  const int value = SimpleEscape(letter);
  if (value >= 0) {
    offset_ += 2;
    return static_cast<uint32_t>(value);
  }
  if (letter != '\0' && std::string_view("dDsSwW").find(letter) != std::string_view::npos) {
    return Unsupported(begin, fmt::format("unsupported class \\{}: write its characters, such as "
                                          "[0-9], [a-zA-Z0-9_] or [ \\t\\r\\n]",
                                          letter));
  }
  return Invalid(begin,
                 "unknown escape; known are \\n \\r \\t \\a \\b \\f \\v \\e \\0 \\xHH \\uHHHH "
                 "\\UHHHHHHHH and a backslash before punctuation");
}

absl::StatusOr<uint32_t> EbnfLexer::ReadHexEscape() {
  const size_t begin = offset_;
  const char letter = Peek(1);
  const size_t num_digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
  uint64_t value = 0;
  for (size_t i = 0; i < num_digits; ++i) {
    const int digit = HexValue(Peek(2 + i));
    if (digit < 0) {
      return Invalid(begin, fmt::format("\\{} takes {} hexadecimal digits; write them all", letter,
                                        num_digits));
    }
    value = value << 4 | static_cast<uint64_t>(digit);
  }
  if (letter == 'x' && HexValue(Peek(4)) >= 0) {
    return Invalid(begin,
                   "a hexadecimal digit follows \\xHH: llama.cpp takes two digits, xgrammar all "
                   "of them; write \\uHHHH");
  }
  if (value > kCharMax || IsSurrogate(static_cast<uint32_t>(value))) {
    return Invalid(begin,
                   "the value is not a character; allowed are 0 to 10FFFF without D800 to DFFF, "
                   "and \\UHHHHHHHH writes a character past FFFF");
  }
  offset_ += 2 + num_digits;
  return static_cast<uint32_t>(value);
}

}  // namespace specd::grammar
