// The flags of specd-toy-engine that are one of several names, for main.cc. Abseil's flags find
// AbslParseFlag through the namespace of each type. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "specd/specd.h"

namespace specd::toy {

enum class DraftChoice { kOneHot, kSampled, kMixed };
enum class PrintFormat { kText, kIds, kNone };
enum class StatsFormat { kTable, kJson, kNone };
struct VerifyChoice {
  uint32_t value = SPECD_VERIFY_AUTO;
};

template <typename T>
struct Choice {
  const char* name;
  T value;
};

constexpr Choice<DraftChoice> kDraftChoices[] = {{"one_hot", DraftChoice::kOneHot},
                                                 {"sampled", DraftChoice::kSampled},
                                                 {"mixed", DraftChoice::kMixed}};
constexpr Choice<PrintFormat> kPrintFormats[] = {
    {"text", PrintFormat::kText}, {"ids", PrintFormat::kIds}, {"none", PrintFormat::kNone}};
constexpr Choice<StatsFormat> kStatsFormats[] = {
    {"table", StatsFormat::kTable}, {"json", StatsFormat::kJson}, {"none", StatsFormat::kNone}};
constexpr Choice<uint32_t> kVerifyChoices[] = {{"auto", SPECD_VERIFY_AUTO},
                                               {"greedy", SPECD_VERIFY_GREEDY},
                                               {"exact_match", SPECD_VERIFY_EXACT_MATCH},
                                               {"token", SPECD_VERIFY_TOKEN},
                                               {"block", SPECD_VERIFY_BLOCK},
                                               {"tree", SPECD_VERIFY_TREE},
                                               {"traversal", SPECD_VERIFY_TRAVERSAL},
                                               {"target_only", SPECD_VERIFY_TARGET_ONLY},
                                               {"typical", SPECD_VERIFY_TYPICAL},
                                               {"relaxed", SPECD_VERIFY_RELAXED},
                                               {"threshold", SPECD_VERIFY_THRESHOLD},
                                               {"synthetic", SPECD_VERIFY_SYNTHETIC}};

template <typename T, size_t N>
bool ParseChoice(const Choice<T> (&choices)[N], absl::string_view text, T* value,
                 std::string* error) {
  std::string names;
  for (const Choice<T>& choice : choices) {
    if (text == choice.name) {
      *value = choice.value;
      return true;
    }
    names += (names.empty() ? "" : ", ") + std::string(choice.name);
  }
  *error = "it must be one of " + names;
  return false;
}

template <typename T, size_t N>
std::string UnparseChoice(const Choice<T> (&choices)[N], T value) {
  for (const Choice<T>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  return "";
}

// Abseil's flags find this function through the namespace of the type.
inline bool AbslParseFlag(absl::string_view text, DraftChoice* value, std::string* error) {
  return ParseChoice(kDraftChoices, text, value, error);
}
inline std::string AbslUnparseFlag(DraftChoice value) {
  return UnparseChoice(kDraftChoices, value);
}
inline bool AbslParseFlag(absl::string_view text, PrintFormat* value, std::string* error) {
  return ParseChoice(kPrintFormats, text, value, error);
}
inline std::string AbslUnparseFlag(PrintFormat value) {
  return UnparseChoice(kPrintFormats, value);
}
inline bool AbslParseFlag(absl::string_view text, StatsFormat* value, std::string* error) {
  return ParseChoice(kStatsFormats, text, value, error);
}
inline std::string AbslUnparseFlag(StatsFormat value) {
  return UnparseChoice(kStatsFormats, value);
}
inline bool AbslParseFlag(absl::string_view text, VerifyChoice* value, std::string* error) {
  return ParseChoice(kVerifyChoices, text, &value->value, error);
}
inline std::string AbslUnparseFlag(VerifyChoice value) {
  return UnparseChoice(kVerifyChoices, value.value);
}

}  // namespace specd::toy
