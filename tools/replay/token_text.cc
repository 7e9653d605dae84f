#include "tools/replay/token_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "detokenizer/tokenizer_file.h"

namespace specd::replay {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
// Letters of ASCII, and every character beyond it.
bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}
bool IsCode(char c) {
  return std::string_view("{}[]()<>=+*/\\|&^%$#@~`_;").find(c) != std::string_view::npos;
}

}  // namespace

std::string_view NameOf(TokenClass token_class) {
  switch (token_class) {
    case TokenClass::kWordStart:
      return "word start";
    case TokenClass::kWordPart:
      return "word part";
    case TokenClass::kDigits:
      return "digits";
    case TokenClass::kPunctuation:
      return "punctuation";
    case TokenClass::kCode:
      return "code";
    case TokenClass::kWhitespace:
      return "whitespace";
    case TokenClass::kSpecial:
      return "special";
    case TokenClass::kOther:
      return "other";
  }
  return "?";
}

absl::StatusOr<TokenText> TokenText::Load(const std::string& path) {
  TokenText text;
  if (path.empty()) return text;
  absl::StatusOr<Vocabulary> vocabulary = OpenTokenizer(path);
  if (!vocabulary.ok()) return vocabulary.status();
  text.vocabulary_ = std::make_shared<const Vocabulary>(*std::move(vocabulary));
  return text;
}

std::string_view TokenText::Bytes(TokenId id) const {
  return vocabulary_ == nullptr ? std::string_view() : vocabulary_->Bytes(id);
}

std::string TokenText::Show(TokenId id) const {
  if (id == kNoToken) return "-";
  return Knows(id) ? fmt::format("{} {}", id, Quoted(Bytes(id))) : fmt::format("{}", id);
}

std::string TokenText::ShowAll(const std::vector<TokenId>& ids) const {
  if (!has_vocabulary()) return fmt::format("{}", fmt::join(ids, " "));
  std::string text;
  for (const TokenId id : ids) text += Bytes(id);
  return Quoted(text);
}

TokenClass TokenText::ClassOf(TokenId id) const {
  if (!Knows(id)) return TokenClass::kOther;
  if (vocabulary_->IsSpecial(id)) return TokenClass::kSpecial;
  const std::string_view bytes = Bytes(id);
  if (bytes.empty()) return TokenClass::kOther;
  if (std::all_of(bytes.begin(), bytes.end(), IsSpace)) return TokenClass::kWhitespace;
  const bool starts = IsSpace(bytes.front());
  const std::string_view rest = bytes.substr(bytes.find_first_not_of(" \t\r\n"));
  if (std::all_of(rest.begin(), rest.end(), IsDigit)) return TokenClass::kDigits;
  if (std::any_of(rest.begin(), rest.end(), IsCode)) return TokenClass::kCode;
  if (std::none_of(rest.begin(), rest.end(), [](char c) { return IsLetter(c) || IsDigit(c); })) {
    return TokenClass::kPunctuation;
  }
  return starts ? TokenClass::kWordStart : TokenClass::kWordPart;
}

size_t CharacterSize(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (bytes.empty()) return 0;
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xC2 && lead <= 0xDF   ? 2
                      : lead >= 0xE0 && lead <= 0xEF ? 3
                      : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                     : 0;
  if (size == 0 || bytes.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and numbers above U+10FFFF.
  if (lead == 0xE0 && at(1) < 0xA0) return 0;
  if (lead == 0xED && at(1) > 0x9F) return 0;
  if (lead == 0xF0 && at(1) < 0x90) return 0;
  if (lead == 0xF4 && at(1) > 0x8F) return 0;
  return size;
}

std::string Quoted(std::string_view bytes) {
  std::string text = "\"";
  while (!bytes.empty()) {
    const size_t size = CharacterSize(bytes);
    const char c = bytes.front();
    const auto byte = static_cast<unsigned char>(c);
    // U+0080 .. U+009F are control characters, which a terminal may obey.
    const bool is_c1 = size == 2 && byte == 0xC2 && static_cast<unsigned char>(bytes[1]) < 0xA0;
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\t') {
      text += "\\t";
    } else if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (size == 0 || byte < 0x20 || byte == 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else if (is_c1) {
      text += fmt::format("\\u{:04x}", static_cast<unsigned char>(bytes[1]));
    } else {
      text += bytes.substr(0, size);
    }
    bytes.remove_prefix(std::max<size_t>(size, 1));
  }
  return text + "\"";
}

}  // namespace specd::replay
