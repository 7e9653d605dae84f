// Any pattern is read or refused with its place, and the languages of what is read agree.
//
// The input: one byte with the text's size, the text, and the pattern.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/core/check.h"
#include "speculative/grammar/front_ends/regex.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

// The reference takes the cube of the text's size, and one item for each count.
constexpr size_t kTextSizeMax = 8;
constexpr size_t kComparedPatternMax = 64;

bool HasLargeCount(std::string_view pattern) {
  int num_digits = 0;
  for (const char byte : pattern) {
    num_digits = std::isdigit(static_cast<uint8_t>(byte)) != 0 ? num_digits + 1 : 0;
    if (num_digits > 2) return true;
  }
  return false;
}

void CheckRefusal(const absl::Status& status) {
  SPECD_CHECK(status.code() == absl::StatusCode::kInvalidArgument ||
              status.code() == absl::StatusCode::kUnimplemented ||
              status.code() == absl::StatusCode::kResourceExhausted);
  SPECD_CHECK(!status.message().empty());
}

void CheckPattern(std::string_view pattern, std::string_view text) {
  GrammarRules rules;
  const absl::StatusOr<ExprId> full = ParseRegex(pattern, {.search = false}, &rules);
  const absl::StatusOr<ExprId> search = ParseRegex(pattern, {.search = true}, &rules);
  // A lookahead at the begin speaks of the whole text only where the pattern is anchored there.
  const bool has_lookahead = pattern.find("(?") != std::string_view::npos;
  SPECD_CHECK(
      full.ok() == search.ok() ||
      (has_lookahead && full.ok() && search.status().code() == absl::StatusCode::kUnimplemented));
  if (!full.ok()) {
    CheckRefusal(full.status());
    return;
  }
  if (pattern.size() > kComparedPatternMax || HasLargeCount(pattern)) return;

  // A search is a match with any characters around it, and anchors in a group stay anchors.
  const std::string anchored = "^(?:" + std::string(pattern) + ")$";
  const absl::StatusOr<ExprId> anchored_search = ParseRegex(anchored, {.search = true}, &rules);
  SPECD_CHECK(anchored_search.ok() || (has_lookahead && anchored_search.status().code() ==
                                                            absl::StatusCode::kUnimplemented));
  if (!anchored_search.ok()) return;
  const bool is_match = GrammarReference(rules, *full).Accepts(text);
  SPECD_CHECK(GrammarReference(rules, *anchored_search).Accepts(text) == is_match);
  SPECD_CHECK(!is_match || !search.ok() || GrammarReference(rules, *search).Accepts(text));
}

}  // namespace
}  // namespace specd::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  if (size_bytes == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
  const size_t text_size =
      std::min<size_t>(data[0] % (specd::grammar::kTextSizeMax + 1), input.size());
  specd::grammar::CheckPattern(input.substr(text_size), input.substr(0, text_size));
  return 0;
}
