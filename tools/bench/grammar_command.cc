#include "tools/bench/grammar_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "tools/bench/command.h"
#include "tools/bench/grammar_peer.h"
#include "tools/bench/grammar_report.h"
#include "tools/bench/grammar_suite.h"
#include "tools/bench/machine.h"

ABSL_DECLARE_FLAG(std::string, python);

ABSL_FLAG(std::string, constraint, "",
          "constraints of grammar by name, separated by commas; empty: all but large ones");
ABSL_FLAG(bool, each, false, "grammar: lines for single constraints too");

namespace specd::bench {
namespace {

std::vector<GrammarCase> AllCases() {
  std::vector<GrammarCase> cases;
  for (size_t i = 0; i < kNumGrammarCases; ++i) cases.push_back(static_cast<GrammarCase>(i));
  return cases;
}

int List() {
  for (const GrammarCase known : AllCases()) {
    fmt::print("{:<12} {}\n", GrammarCaseName(known), GrammarCaseSummary(known));
  }
  return 0;
}

// The entries of `all` that the text names; all of them if it is empty.
template <typename T, typename NameOf>
absl::StatusOr<std::vector<T>> Choose(std::string_view flag, const std::string& text,
                                      const std::vector<T>& all, const NameOf& name_of) {
  if (text.empty()) return all;
  std::vector<T> chosen;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    const std::string_view name(item.data(), item.size());
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const T& known) { return name_of(known) == name; });
    if (found == all.end()) {
      std::vector<std::string_view> names;
      for (const T& known : all) names.push_back(name_of(known));
      return absl::InvalidArgumentError(
          fmt::format("{} = {} is unknown: there are {}", flag, name, fmt::join(names, ", ")));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

absl::StatusOr<GrammarOptions> OptionsFromFlags() {
  const bool quick = absl::GetFlag(FLAGS_quick);
  GrammarOptions options;
  absl::StatusOr<std::vector<GrammarCase>> cases =
      Choose("case", absl::GetFlag(FLAGS_case), AllCases(), GrammarCaseName);
  if (!cases.ok()) return cases.status();
  options.cases = *std::move(cases);
  std::vector<const GrammarText*> usual;
  for (const GrammarText& text : GrammarTexts()) usual.push_back(&text);
  std::vector<const GrammarText*> all = usual;
  for (const GrammarText& text : LargeGrammarTexts()) all.push_back(&text);
  absl::StatusOr<std::vector<const GrammarText*>> texts =
      Choose("constraint", absl::GetFlag(FLAGS_constraint), all,
             [](const GrammarText* text) { return text->name; });
  if (!texts.ok()) return texts.status();
  options.texts = absl::GetFlag(FLAGS_constraint).empty() ? usual : *std::move(texts);
  const absl::StatusOr<std::vector<int32_t>> sizes =
      ParseNumbers({.flag = "vocab",
                    .text = absl::GetFlag(FLAGS_vocab),
                    .minimum = SyntheticVocabulary::kSizeMin,
                    .maximum = kVocabSizeMax,
                    .quick = {128256},
                    .full = {128256}},
                   quick);
  if (!sizes.ok()) return sizes.status();
  if (sizes->size() != 1) {
    return absl::InvalidArgumentError(fmt::format("vocab = {} has {} sizes; grammar measures one",
                                                  absl::GetFlag(FLAGS_vocab), sizes->size()));
  }
  options.vocab_size = sizes->front();
  options.each = absl::GetFlag(FLAGS_each);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  if (!(options.seconds >= 0 && options.seconds <= 3600)) {
    return absl::InvalidArgumentError(
        fmt::format("seconds = {} is outside 0 .. 3600", options.seconds));
  }
  if (options.seconds == 0) options.seconds = quick ? 20 : 120;
  return options;
}

}  // namespace

int RunGrammar(const std::string& command) {
  if (absl::GetFlag(FLAGS_list)) return List();
  const absl::StatusOr<GrammarOptions> options = OptionsFromFlags();
  if (!options.ok()) return Fail(kExitUsage, std::string(options.status().message()));
  const absl::StatusOr<ReportOptions> report_options = ReportOptionsFromFlags();
  if (!report_options.ok()) return Fail(kExitUsage, std::string(report_options.status().message()));
  const std::string base = absl::GetFlag(FLAGS_base);
  if (!base.empty() && base != GrammarPeer::kName) {
    return Fail(kExitUsage, fmt::format("base = {} is not {}, the one peer of grammar", base,
                                        GrammarPeer::kName));
  }
  const Progress progress;
  const Machine machine = ReadMachine();
  GrammarReport report(*report_options, machine);
  GrammarSuite::Hooks hooks = {.make_peer = nullptr,
                               .on_progress = [&](std::string_view text) { progress.Show(text); },
                               .on_result =
                                   [&](const GrammarMeasurement& measurement) {
                                     progress.Clear();
                                     report.Print(measurement);
                                   }};
  if (!base.empty()) {
    hooks.make_peer = [&](const SyntheticVocabulary& vocabulary) {
      return GrammarPeer::Start(absl::GetFlag(FLAGS_python), vocabulary, options->vocab_size);
    };
  }
  report.PrintHead(command, Describe(machine, 1));
  const absl::Status status = GrammarSuite(*options, std::move(hooks)).Run();
  progress.Clear();
  if (absl::IsFailedPrecondition(status)) {
    return Fail(kExitUsage, std::string(status.message()));
  }
  if (!status.ok()) return Fail(kExitError, std::string(status.message()));
  report.PrintEnd();
  return 0;
}

}  // namespace specd::bench
