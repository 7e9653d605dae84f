#include "tools/toy_engine/request_ids.h"

#include <fmt/format.h>

#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "tools/toy_engine/utf8.h"

namespace specd::toy {
namespace {

constexpr size_t kRequestIdSizeMax = 128;  // specd.h, specd_open_sequence

std::string LabelOf(std::string_view prompt, size_t size_max) {
  std::string label;
  for (size_t i = 0; i < prompt.size();) {
    const Utf8Char c = DecodeUtf8(prompt, i);
    // C0, DEL and C1 controls.
    const bool printable =
        c.valid && c.code_point >= 0x20 && (c.code_point < 0x7F || c.code_point > 0x9F);
    label += printable ? prompt.substr(i, c.size_bytes) : std::string_view(" ");
    i += c.size_bytes;
  }
  return std::string(Utf8Prefix(label, size_max));
}

}  // namespace

std::vector<std::string> MakeRequestIds(const std::vector<std::string>& prompts) {
  std::vector<std::string> ids;
  std::set<std::string> taken;
  for (const std::string& prompt : prompts) {
    std::string id = LabelOf(prompt, kRequestIdSizeMax);
    for (size_t number = 2; id.empty() || taken.contains(id); ++number) {
      const std::string suffix = fmt::format(" ({})", number);
      id = LabelOf(prompt, kRequestIdSizeMax - suffix.size()) + suffix;
    }
    taken.insert(id);
    ids.push_back(std::move(id));
  }
  return ids;
}

}  // namespace specd::toy
