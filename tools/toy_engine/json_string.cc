#include "tools/toy_engine/json_string.h"

#include <fmt/format.h>

#include <cstddef>

#include "tools/toy_engine/utf8.h"

namespace specd::toy {

std::string QuoteJson(std::string_view text) {
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (!c.valid) {
      quoted += "\\ufffd";
    } else if (c.code_point == '"' || c.code_point == '\\') {
      quoted += '\\';
      quoted += text[i];
    } else if (c.code_point < 0x20) {
      quoted += fmt::format("\\u{:04x}", c.code_point);
    } else {
      quoted += text.substr(i, c.size_bytes);
    }
    i += c.size_bytes;
  }
  return quoted + '"';
}

}  // namespace specd::toy
