// EbnfLexer splits the text of a grammar into tokens for the parser of ebnf.h.
//
// Two dialects are read: GBNF (llama.cpp) and xgrammar's EBNF. Where a spelling means one thing to
// one of them and another thing to the other, the lexer refuses it and names a spelling that both
// read alike. A lexer belongs to one thread.
//
//   EbnfLexer lexer(text);
//   absl::StatusOr<EbnfToken> token = lexer.Next();   // kEnd for ever after the last one
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/char_set.h"

namespace specd::grammar {

enum class EbnfTokenKind : uint8_t {
  kEnd,
  kName,
  kAssign,     // ::=
  kLiteral,    // "..."
  kClass,      // [...], or . for every character
  kAlternate,  // |
  kOpen,       // (
  kClose,      // )
  kRepeat,     // * + ? {m} {m,} {m,n}
};

struct EbnfToken {
  EbnfTokenKind kind = EbnfTokenKind::kEnd;
  size_t offset = 0;
  std::string_view source;   // the spelling
  bool begins_line = false;  // only blanks are before it on its line
  std::string literal;       // kLiteral
  CharSet set;               // kClass
  uint32_t min = 0;          // kRepeat
  uint32_t max = 0;          // kRepeat; kUnbounded: no bound
};

// A repetition counts no further than this.
inline constexpr uint32_t kEbnfRepeatMax = 65535;

class EbnfLexer {
 public:
  // REQUIRES: text is valid UTF-8 and outlives the lexer and its tokens.
  explicit EbnfLexer(std::string_view text) : text_(text) {}

  absl::StatusOr<EbnfToken> Next();

  absl::Status Invalid(size_t offset, std::string_view message) const;
  absl::Status Unsupported(size_t offset, std::string_view message) const;

 private:
  void SkipBlanks();
  absl::Status ReadToken(EbnfToken* token);
  absl::Status ReadSymbol(EbnfToken* token);
  absl::Status ReadName(EbnfToken* token);
  absl::Status ReadLiteral(EbnfToken* token);
  absl::Status ReadClass(EbnfToken* token);
  absl::Status ReadRange(EbnfToken* token);
  absl::StatusOr<uint32_t> ReadCount();
  absl::StatusOr<uint32_t> ReadCharacter();
  absl::StatusOr<uint32_t> ReadEscape();
  absl::StatusOr<uint32_t> ReadHexEscape();

  char Peek(size_t ahead = 0) const {
    return offset_ + ahead < text_.size() ? text_[offset_ + ahead] : '\0';
  }
  bool IsAtEnd() const { return offset_ == text_.size(); }

  const std::string_view text_;
  size_t offset_ = 0;
  bool begins_line_ = true;
};

}  // namespace specd::grammar
