// TokenText gives the text of token ids for the commands that take --tokenizer.
//
// Without a tokenizer every id has only its number. Constant after Load; safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"
#include "kernels/core/types.h"

namespace specd::replay {

// The class of a token for statistics.
enum class TokenClass {
  kWordStart,
  kWordPart,
  kDigits,
  kPunctuation,
  kCode,
  kWhitespace,
  kSpecial,
  kOther
};
std::string_view NameOf(TokenClass token_class);

class TokenText {
 public:
  TokenText() = default;
  // An empty path: no tokenizer.
  static absl::StatusOr<TokenText> Load(const std::string& path);

  bool has_vocabulary() const { return vocabulary_ != nullptr; }
  // The raw bytes; empty if the id has none.
  std::string_view Bytes(TokenId id) const;
  bool Knows(TokenId id) const { return vocabulary_ != nullptr && vocabulary_->Contains(id); }

  // `17 " cat"`, or `17` without a tokenizer. "-" for kNoToken.
  std::string Show(TokenId id) const;
  // Ids one after another as one text, quoted; numbers without a tokenizer.
  std::string ShowAll(const std::vector<TokenId>& ids) const;

  TokenClass ClassOf(TokenId id) const;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
};

// In double quotes; control characters, quotes and bytes that are not UTF-8 as escapes.
std::string Quoted(std::string_view bytes);

// The size of the well-formed UTF-8 character at the beginning of `bytes`; 0: there is none.
size_t CharacterSize(std::string_view bytes);

}  // namespace specd::replay
