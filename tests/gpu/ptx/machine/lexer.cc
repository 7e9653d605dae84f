#include "tests/gpu/ptx/machine/lexer.h"

#include <cctype>

namespace specd::ptx {

namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool IsOfWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> Run() {
    while (at_ < text_.size()) {
      if (IsSpace(text_[at_])) {
        Skip(at_ + 1);
      } else if (StartsWith("//")) {
        Skip(text_.find('\n', at_));
      } else if (StartsWith("/*")) {
        const size_t end = text_.find("*/", at_ + 2);
        Skip(end == std::string_view::npos ? end : end + 2);
      } else {
        Take(EndOfToken());
      }
    }
    return std::move(tokens_);
  }

 private:
  bool StartsWith(std::string_view prefix) const { return text_.substr(at_).starts_with(prefix); }
  char At(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

  void Skip(size_t end) {
    end = std::min(end, text_.size());
    for (; at_ < end; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
  }
  void Take(size_t end) {
    tokens_.push_back({std::string(text_.substr(at_, end - at_)), line_});
    Skip(end);
  }
  size_t EndOfToken() const {
    if (text_[at_] == '"') return std::min(text_.find('"', at_ + 1), text_.size() - 1) + 1;
    size_t end = at_ + 1;
    if (!IsOfWord(text_[at_]) && !(text_[at_] == '-' && IsDigit(At(end)))) return end;
    while (IsOfWord(At(end)) || IsInnerColon(end)) ++end;
    return end;
  }
  // "::" joins two parts of a name; a single colon ends a label.
  bool IsInnerColon(size_t i) const {
    return At(i) == ':' && (At(i + 1) == ':' || (At(i - 1) == ':' && i - 1 > at_));
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view text) { return Lexer(text).Run(); }

}  // namespace specd::ptx
