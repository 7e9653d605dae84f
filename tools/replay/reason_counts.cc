#include "tools/replay/reason_counts.h"

#include <fmt/format.h>

namespace specd::replay {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string WithoutNumbers(std::string_view message) {
  std::string text;
  for (const char c : message) {
    if (!IsDigit(c)) {
      text += c;
    } else if (text.empty() || text.back() != '#') {
      text += '#';
    }
  }
  return text;
}

}  // namespace

void ReasonCounts::Add(std::string_view message, uint64_t count) {
  Reason& reason = reasons_[WithoutNumbers(message)];
  if (reason.count == 0) reason.first = message;
  reason.count += count;
}

std::string TextOf(const std::pair<const std::string, ReasonCounts::Reason>& reason) {
  const bool is_example = reason.second.count > 1 && reason.first != reason.second.first;
  return is_example ? fmt::format("{} (the first of them)", reason.second.first)
                    : reason.second.first;
}

}  // namespace specd::replay
