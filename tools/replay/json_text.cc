#include "tools/replay/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/replay/token_text.h"

namespace specd::replay {

std::string JsonString(std::string_view bytes) {
  std::string text = "\"";
  while (!bytes.empty()) {
    const size_t size = CharacterSize(bytes);
    const auto byte = static_cast<unsigned char>(bytes.front());
    if (size == 0) {
      text += fmt::format("\\udc{:02x}", byte);
    } else if (byte == '"' || byte == '\\') {
      text += '\\';
      text += bytes.front();
    } else if (byte < 0x20 || byte == '<') {
      text += fmt::format("\\u{:04x}", byte);
    } else {
      text += bytes.substr(0, size);
    }
    bytes.remove_prefix(std::max<size_t>(size, 1));
  }
  return text + "\"";
}

std::string JsonNumber(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return "null";
  // A double without a fraction stays short, which a reader takes for the same number.
  if (*value == std::floor(*value) && std::abs(*value) < 1e15) return fmt::format("{:.0f}", *value);
  return fmt::format("{}", *value);
}

}  // namespace specd::replay
