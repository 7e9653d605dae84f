#include "detokenizer/utf8_stream.h"

#include <cstddef>

namespace specd {

// The Unicode Standard, Table 3-7 (well-formed UTF-8 byte sequences). The lead byte alone decides
// the length. After E0, ED, F0 and F4 it narrows the second byte, which excludes overlong forms,
// surrogates and everything past U+10FFFF.
bool Utf8Stream::Begin(uint8_t lead) {
  next_min_ = 0x80;
  next_max_ = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    num_needed_ = 1;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    num_needed_ = 2;
    if (lead == 0xE0) next_min_ = 0xA0;
    if (lead == 0xED) next_max_ = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    num_needed_ = 3;
    if (lead == 0xF0) next_min_ = 0x90;
    if (lead == 0xF4) next_max_ = 0x8F;
  } else {
    return false;
  }
  held_[0] = static_cast<char>(lead);
  num_held_ = 1;
  return true;
}

bool Utf8Stream::Advance() {
  next_min_ = 0x80;
  next_max_ = 0xBF;
  return --num_needed_ > 0;
}

bool Utf8Stream::Continues(std::string_view bytes) const {
  Utf8Stream ahead = *this;
  for (const char byte : bytes) {
    if (!ahead.IsNext(static_cast<uint8_t>(byte))) return false;
    if (!ahead.Advance()) return true;
  }
  return true;
}

void Utf8Stream::Push(std::string_view bytes, std::string* text) {
  size_t i = 0;
  while (i < bytes.size()) {
    if (!HasPending()) {
      const size_t run_begin = i;
      while (i < bytes.size() && static_cast<uint8_t>(bytes[i]) < 0x80) ++i;
      text->append(bytes.substr(run_begin, i - run_begin));
      if (i == bytes.size()) return;
      if (!Begin(static_cast<uint8_t>(bytes[i]))) text->append(kReplacementCharacter);
      ++i;
      continue;
    }
    const uint8_t byte = bytes[i];
    if (!IsNext(byte)) {
      // The held bytes are a maximal subpart. This byte is not part of it and is read again.
      Finish(text);
      continue;
    }
    ++i;
    if (Advance()) {
      held_[num_held_++] = static_cast<char>(byte);
    } else {
      text->append(held_, num_held_);
      text->push_back(static_cast<char>(byte));
      num_held_ = 0;
    }
  }
}

void Utf8Stream::Finish(std::string* text) {
  if (HasPending()) {
    const int count = replacement_ == Utf8Replacement::kByte ? num_held_ : 1;
    for (int i = 0; i < count; ++i) text->append(kReplacementCharacter);
  }
  Discard();
}

}  // namespace specd
