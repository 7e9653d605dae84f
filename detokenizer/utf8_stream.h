// Utf8Stream turns bytes that arrive piece by piece into valid UTF-8 for one sequence. It releases
// each code point as soon as its last byte is there.
//
// Ill-formed bytes become U+FFFD, one for every maximal subpart of a well-formed sequence.
// CPython's errors="replace", the WHATWG decoder and Rust's from_utf8_lossy give exactly the same
// for the whole input, however the input is cut into pieces. SentencePiece gives one for every byte
// that is not part of a code point, and so does Utf8Replacement::kByte. At most three bytes are
// held back, and only while they begin a code point that may still be completed. An object is eight
// bytes to copy and has no locks.
//
//   Utf8Stream stream;
//   stream.Push("\xE4\xBD", &text);   // nothing yet
//   stream.Push("\xA0!", &text);      // text == "你!"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace specd {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Replacement : uint8_t { kSubpart, kByte };

class Utf8Stream {
 public:
  Utf8Stream() = default;
  explicit Utf8Stream(Utf8Replacement replacement) : replacement_(replacement) {}

  // Appends to `text` every code point that `bytes` completes.
  void Push(std::string_view bytes, std::string* text);

  // Ends the input: held bytes become U+FFFD. The object is then as new.
  void Finish(std::string* text);

  // Forgets held bytes, for text that is dropped.
  void Discard() { *this = Utf8Stream(replacement_); }

  bool HasPending() const { return num_needed_ != 0; }

  // True if `bytes` complete the pending code point or leave it pending; false if they prove it
  // ill-formed. REQUIRES: HasPending().
  bool Continues(std::string_view bytes) const;

 private:
  // Starts a sequence of several bytes; false if no well-formed sequence begins with this byte.
  bool Begin(uint8_t lead);
  bool IsNext(uint8_t byte) const { return byte >= next_min_ && byte <= next_max_; }
  // Counts a byte of the pending code point that IsNext; true if more bytes are missing.
  bool Advance();

  char held_[3] = {};
  uint8_t num_held_ = 0;
  uint8_t num_needed_ = 0;  // bytes missing to the end of the code point; 0 between code points
  uint8_t next_min_ = 0;    // the next byte must lie in next_min_..next_max_
  uint8_t next_max_ = 0;
  Utf8Replacement replacement_ = Utf8Replacement::kSubpart;
};
static_assert(sizeof(Utf8Stream) == 8, "a token's step copies it");

}  // namespace specd
