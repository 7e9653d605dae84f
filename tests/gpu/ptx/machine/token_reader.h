// TokenReader hands the tokens of a module to the parser and keeps the first error.
//
// After an error it stands at the end, where every token is empty, so that loops of the parser end
// without looking at the status.
#pragma once

#include <absl/status/status.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/ptx/machine/lexer.h"

namespace specd::ptx {

class TokenReader {
 public:
  TokenReader(std::string file, std::vector<Token> tokens)
      : file_(std::move(file)), tokens_(std::move(tokens)) {}

  bool AtEnd() const { return at_ >= tokens_.size(); }
  const std::string& Peek(size_t ahead = 0) const {
    static const std::string none;
    return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead].text : none;
  }
  bool Is(std::string_view text) const { return Peek() == text; }
  // Whether the next token begins with a dot.
  bool IsDirective() const { return Peek().starts_with('.'); }
  int line() const { return AtEnd() ? last_line_ : tokens_[at_].line; }

  std::string Next() {
    if (AtEnd()) {
      Fail("the text ends too early");
      return {};
    }
    last_line_ = tokens_[at_].line;
    return std::move(tokens_[at_++].text);
  }
  bool TakeIf(std::string_view text) {
    if (!Is(text)) return false;
    Next();
    return true;
  }
  void Expect(std::string_view text) {
    if (!TakeIf(text)) Fail(fmt::format("'{}' stands where '{}' is expected", Peek(), text));
  }
  // A whole number in C's notation.
  int64_t NextNumber() {
    const std::string text = Next();
    char* end = nullptr;
    const int64_t value = std::strtoll(text.c_str(), &end, 0);
    if (text.empty() || *end != '\0') Fail(fmt::format("'{}' is no number", text));
    return value;
  }
  // Takes tokens up to the text, and that.
  void SkipBehind(std::string_view text) {
    while (!AtEnd() && Next() != text) {
    }
  }

  void Fail(const std::string& what) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(fmt::format("{}:{}: {}", file_, line(), what));
    }
    at_ = tokens_.size();
  }
  const absl::Status& status() const { return status_; }

 private:
  std::string file_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int last_line_ = 1;
  absl::Status status_ = absl::OkStatus();
};

}  // namespace specd::ptx
