#include "speculative/grammar/xgrammar_json.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

#include "speculative/grammar/json_memory.h"

namespace specd::grammar {

absl::Status JsonDocument::Parse(std::string_view text, std::string_view name) {
  if (const auto error = parser_.allocate(text.size(), kJsonDepthMax)) {
    if (absl::Status status = CheckJsonMemory(error); !status.ok()) return status;
    return absl::ResourceExhaustedError(
        fmt::format("{}: the text cannot be parsed: {}", name, simdjson::error_message(error)));
  }
  const auto error = parser_.parse(text.data(), text.size()).get(root_);
  if (absl::Status status = CheckJsonMemory(error); !status.ok()) return status;
  if (error == simdjson::DEPTH_ERROR) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: the JSON text is nested deeper than {} levels", name, kJsonDepthMax));
  }
  if (error) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the text is not JSON: {}", name, simdjson::error_message(error)));
  }
  return absl::OkStatus();
}

std::string ToJsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint8_t>(c));
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

std::string JoinPointer(const std::string& pointer, std::string_view name) {
  std::string out = pointer + "/";
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace specd::grammar
