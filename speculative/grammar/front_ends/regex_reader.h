// RegexReader reads the characters, escapes and classes of a regular expression for ParseRegex.
//
// It holds a place in the pattern, and makes the errors that show a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "speculative/grammar/base/char_set.h"

namespace specd::grammar {

// The characters of an escape or of a class item.
struct RegexChars {
  bool is_set = false;  // \d and the like: no end of a range
  CharSet set;
  uint32_t code_point = 0;  // if it is no set
};

class RegexReader {
 public:
  // REQUIRES: the pattern is valid UTF-8, and outlives the reader.
  explicit RegexReader(std::string_view pattern) : pattern_(pattern) {}

  bool AtEnd() const { return offset_ == pattern_.size(); }
  size_t offset() const { return offset_; }
  bool NextIs(std::string_view text) const { return pattern_.substr(offset_).starts_with(text); }
  bool NextIsDigit() const {
    return !AtEnd() && pattern_[offset_] >= '0' && pattern_[offset_] <= '9';
  }
  // Passes over `text` if it comes next.
  bool Take(std::string_view text);
  // REQUIRES: not AtEnd().
  uint32_t TakeChar();
  // A decimal number, or `past` if it is larger. REQUIRES: NextIsDigit().
  uint32_t TakeNumber(uint32_t past);
  // REQUIRES: a backslash comes next.
  absl::StatusOr<RegexChars> TakeEscape(bool is_in_class);
  // REQUIRES: [ comes next.
  absl::StatusOr<CharSet> TakeClass();

  absl::Status Invalid(size_t offset, std::string_view message) const;
  absl::Status Unsupported(size_t offset, std::string_view message) const;
  absl::Status TooLarge(size_t offset, std::string_view message) const;

 private:
  absl::StatusOr<RegexChars> TakeClassItem();
  absl::StatusOr<uint32_t> TakeHex(size_t escape_offset, int num_digits);
  // \uHHHH, a pair of them, or \u{H...}; after the u.
  absl::StatusOr<uint32_t> TakeUnicode(size_t escape_offset);
  absl::Status RefuseEscape(size_t escape_offset, uint32_t letter, bool is_in_class) const;

  std::string_view pattern_;
  size_t offset_ = 0;
};

}  // namespace specd::grammar
