// Mentions tells tests whether a text, or the message of a status, has some words: the field, the
// value or the remedy that a refusal has to name. A check that fails prints the whole text. A pure
// function.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace specd {

// A bool that a check prints as the text.
struct Mention {
  operator bool() const { return has_words; }
  friend std::ostream& operator<<(std::ostream& out, const Mention& mention) {
    return out << mention.text;
  }

  bool has_words;
  std::string text;
};

inline Mention Mentions(std::string_view text, std::string_view words) {
  return {text.find(words) != std::string_view::npos, std::string(text)};
}
inline Mention Mentions(const absl::Status& status, std::string_view words) {
  return Mentions(std::string_view(status.message().data(), status.message().size()), words);
}

}  // namespace specd
