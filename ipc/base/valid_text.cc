#include "ipc/base/valid_text.h"

#include <cstdint>

namespace specd {
namespace {

// The bytes of the code point at the begin of `text`; 0: there is none (RFC 3629, section 4).
size_t CodePointBytes(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than need be, a surrogate, or above U+10FFFF.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return size;
}

}  // namespace

std::string ValidText(std::string_view text, size_t size_max) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string valid;
  while (!text.empty()) {
    const size_t size = CodePointBytes(text);
    const uint8_t byte = text[0];
    const char escaped[] = {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    const std::string_view next =
        size > 0 ? text.substr(0, size) : std::string_view(escaped, sizeof(escaped));
    if (next.size() > size_max - valid.size()) break;
    valid += next;
    text.remove_prefix(size > 0 ? size : 1);
  }
  return valid;
}

}  // namespace specd
