// Computes the expected text for the detokenizer's tests and fuzzers, the slow and obvious way.
//
// It shares no code and no idea with detokenizer/. It finds ill-formed UTF-8 by comparing with the
// rows of the Unicode Standard's Table 3-7, and stop strings by trying every place. Pure functions,
// safe from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace specd::reference {

struct ByteRange {
  uint8_t min;
  uint8_t max;
};

// The Unicode Standard, Table 3-7, Well-Formed UTF-8 Byte Sequences, row by row.
inline const std::vector<std::vector<ByteRange>>& Table37() {
  static const std::vector<std::vector<ByteRange>> rows = {
      {{0x00, 0x7F}},
      {{0xC2, 0xDF}, {0x80, 0xBF}},
      {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}},
      {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}},
      {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}},
      {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}},
      {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
      {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
      {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}},
  };
  return rows;
}

inline std::string EncodeUtf8(uint32_t code_point) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  const auto tail = [&](int shift) { return byte(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) return {byte(code_point)};
  if (code_point < 0x800) return {byte(0xC0 | code_point >> 6), tail(0)};
  if (code_point < 0x10000) return {byte(0xE0 | code_point >> 12), tail(6), tail(0)};
  return {byte(0xF0 | code_point >> 18), tail(12), tail(6), tail(0)};
}

struct Decoded {
  std::string text;      // the text that later bytes cannot change
  bool pending = false;  // the input ends inside a code point that may still be completed
  size_t pending_bytes = 0;
};

// One U+FFFD for each maximal subpart of an ill-formed sequence (the Unicode Standard,
// section 3.9). With `each_byte` one for each byte of it, as SentencePiece gives.
inline Decoded DecodeUtf8(std::string_view bytes, bool each_byte = false) {
  Decoded decoded;
  size_t at = 0;
  while (at < bytes.size()) {
    size_t longest = 0;
    bool is_complete = false;
    for (const std::vector<ByteRange>& row : Table37()) {
      size_t length = 0;
      while (length < row.size() && at + length < bytes.size()) {
        const auto byte = static_cast<uint8_t>(bytes[at + length]);
        if (byte < row[length].min || byte > row[length].max) break;
        ++length;
      }
      if (length > longest) {
        longest = length;
        is_complete = length == row.size();
      }
    }
    if (is_complete) {
      decoded.text += bytes.substr(at, longest);
    } else if (longest > 0 && at + longest == bytes.size()) {
      decoded.pending = true;
      decoded.pending_bytes = longest;
    } else {
      const size_t count = each_byte ? std::max<size_t>(longest, 1) : 1;
      for (size_t i = 0; i < count; ++i) decoded.text += "\xEF\xBF\xBD";
    }
    at += std::max<size_t>(longest, 1);
  }
  return decoded;
}

struct FoundStop {
  size_t begin = 0;
  size_t end = 0;
  int index = 0;
};

// The stop string that ends first; if several do, the first of the list.
inline std::optional<FoundStop> FindFirstStop(std::string_view text,
                                              const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (size_t index = 0; index < stops.size(); ++index) {
      const std::string& stop = stops[index];
      if (stop.size() <= end && text.substr(end - stop.size(), stop.size()) == stop) {
        return FoundStop{end - stop.size(), end, static_cast<int>(index)};
      }
    }
  }
  return std::nullopt;
}

// The length of the longest suffix of `text` that begins a stop string.
inline size_t HeldSizeBytes(std::string_view text, const std::vector<std::string>& stops) {
  for (size_t size = text.size(); size > 0; --size) {
    const std::string_view tail = text.substr(text.size() - size);
    for (const std::string& stop : stops) {
      if (stop.size() >= size && std::string_view(stop).substr(0, size) == tail) return size;
    }
  }
  return 0;
}

struct Token {
  std::string bytes;
  bool accepted_draft = false;
  bool skipped = false;  // a special token that is not shown
};

struct Text {
  std::string text;
  std::vector<bool> accepted_draft;  // for each byte of text
  std::optional<int> stop;
  size_t num_tokens = 0;  // pushed before the stream ended
};

// All the text of a sequence at once. If the last token is withheld, its text is only searched for
// a stop string.
inline Text DecodeSequence(const std::vector<Token>& tokens, bool is_last_withheld,
                           const std::vector<std::string>& stops, bool include_stop) {
  Text result;
  std::string bytes;
  bool last_accepted_draft = false;
  for (const Token& token : tokens) {
    const bool is_withheld = is_last_withheld && &token == &tokens.back();
    ++result.num_tokens;
    if (token.skipped) continue;
    const std::string longer = bytes + token.bytes;
    const std::string text = DecodeUtf8(longer).text;
    std::vector<bool> accepted_draft = result.accepted_draft;
    accepted_draft.resize(text.size(), token.accepted_draft);
    if (const std::optional<FoundStop> found = FindFirstStop(text, stops)) {
      const size_t size = include_stop ? found->end : found->begin;
      result.text = text.substr(0, size);
      accepted_draft.resize(size);
      result.accepted_draft = accepted_draft;
      result.stop = found->index;
      return result;
    }
    if (is_withheld) break;
    if (!token.bytes.empty()) last_accepted_draft = token.accepted_draft;
    bytes = longer;
    result.text = text;
    result.accepted_draft = accepted_draft;
  }
  if (DecodeUtf8(bytes).pending) {
    result.text += "\xEF\xBF\xBD";
    result.accepted_draft.resize(result.text.size(), last_accepted_draft);
  }
  return result;
}

}  // namespace specd::reference
