// The flags and the output that the suites of specd-bench share.
//
// Flags are read after they were parsed, on the main thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "tools/bench/table.h"
#include "tools/bench/terminal.h"

ABSL_DECLARE_FLAG(bool, quick);
ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(bool, markdown);
ABSL_DECLARE_FLAG(bool, list);
ABSL_DECLARE_FLAG(std::string, case);
ABSL_DECLARE_FLAG(std::string, vocab);
ABSL_DECLARE_FLAG(double, seconds);
ABSL_DECLARE_FLAG(std::string, base);

namespace specd::bench {

constexpr int kExitError = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNoDevice = 3;

// Prints the message, and returns the exit code.
int Fail(int exit_code, std::string_view message);

struct NumberList {
  std::string_view flag;
  std::string text;
  int32_t minimum;
  int32_t maximum;
  std::vector<int32_t> quick;
  std::vector<int32_t> full;
};

// The numbers of the list's text; if that is empty, those of the list.
absl::StatusOr<std::vector<int32_t>> ParseNumbers(const NumberList& list, bool quick);

absl::StatusOr<ReportOptions> ReportOptionsFromFlags();

// Refuses a flag that was given and that this suite would ignore.
absl::Status CheckFlags(std::string_view suite, std::span<const std::string_view> taken);

}  // namespace specd::bench
