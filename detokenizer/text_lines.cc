#include "detokenizer/text_lines.h"

#include <fmt/format.h>

#include <cstddef>

#include "absl/strings/escaping.h"

namespace specd {

std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

std::string QuoteBytes(std::string_view line) {
  constexpr size_t kQuotedSizeBytesMax = 60;
  const bool is_cut = line.size() > kQuotedSizeBytesMax;
  return fmt::format("\"{}{}\"", absl::CHexEscape(std::string(line.substr(0, kQuotedSizeBytesMax))),
                     is_cut ? "..." : "");
}

}  // namespace specd
