#include "tools/bench/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

ABSL_FLAG(bool, quick, false, "one vocabulary, batch and draft: those that the design names");
ABSL_FLAG(bool, json, false, "one JSON object per line");
ABSL_FLAG(bool, markdown, false, "tables as docs/BENCHMARKS.md has them");
ABSL_FLAG(bool, list, false, "name the cases and do nothing");
ABSL_FLAG(std::string, case, "", "cases by name, separated by commas; empty: all");
ABSL_FLAG(std::string, vocab, "", "vocabulary sizes, separated by commas");
ABSL_FLAG(double, seconds, 0,
          "time for each measurement (0: 1 with --quick, 0.5 without); opening: 0 is 2 and 10; "
          "of grammar, for all (0: 20 with --quick, 120 without)");
ABSL_FLAG(
    std::string, base, "",
    "what to compare with: read, textbook (a plain sampler), or llama (llama.cpp's samplers, where "
    "they are built in); empty: read, and with --quick then textbook for one thread, one sequence "
    "and warm rows; grammar: xgrammar, by --python, or nothing");

namespace specd::bench {
int Fail(int exit_code, std::string_view message) {
  fmt::print(stderr, "specd-bench: {}\n", message);
  return exit_code;
}

absl::StatusOr<std::vector<int32_t>> ParseNumbers(const NumberList& list, bool quick) {
  if (list.text.empty()) return quick ? list.quick : list.full;
  std::vector<int32_t> numbers;
  for (const absl::string_view item : absl::StrSplit(list.text, ',')) {
    int32_t number = 0;
    if (!absl::SimpleAtoi(item, &number) || number < list.minimum || number > list.maximum) {
      return absl::InvalidArgumentError(fmt::format(
          "{} = {} is not a list of whole numbers in {} .. {}, such as {}={},{}", list.flag,
          list.text, list.minimum, list.maximum, list.flag, list.full.front(), list.full.back()));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::Status CheckFlags(std::string_view suite, std::span<const std::string_view> taken) {
  for (const std::string_view name :
       {"quick", "json",  "markdown",  "list",       "case",    "vocab",  "seconds",
        "base",  "batch", "draft",     "dtype",      "threads", "state",  "rows",
        "gap",   "specd", "directory", "constraint", "each",    "counts", "python"}) {
    const absl::CommandLineFlag* const flag =
        absl::FindCommandLineFlag(absl::string_view(name.data(), name.size()));
    if (flag == nullptr || flag->CurrentValue() == flag->DefaultValue() ||
        std::find(taken.begin(), taken.end(), name) != taken.end()) {
      continue;
    }
    return absl::InvalidArgumentError(
        fmt::format("{} is no flag of {}, which takes {}", name, suite, fmt::join(taken, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<ReportOptions> ReportOptionsFromFlags() {
  if (absl::GetFlag(FLAGS_json) && absl::GetFlag(FLAGS_markdown)) {
    return absl::InvalidArgumentError("json and markdown exclude each other; give one of them");
  }
  ReportOptions options;
  if (absl::GetFlag(FLAGS_json)) options.format = ReportFormat::kJson;
  if (absl::GetFlag(FLAGS_markdown)) options.format = ReportFormat::kMarkdown;
  options.colour = IsColourful(STDOUT_FILENO);
  return options;
}

}  // namespace specd::bench
