// specd_grammar_judge looks for constraints that crash the compiler of grammars, take too much time
// or memory, or die after their opening (tests/README.md, "The judge of grammars").
//
//   specd_grammar_judge --seed=1 --count=20000 --minimize
//   specd_grammar_judge --known=tests/fuzz/corpus/grammar_judge/known.txt
//   specd_grammar_judge --folder=DIRECTORY --outcomes=FILE
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "tests/fuzz/judge/drawn_constraint.h"
#include "tests/fuzz/judge/known_constraints.h"
#include "tests/fuzz/judge/schema_folder.h"
#include "tests/fuzz/judge/smaller_constraints.h"
#include "tests/fuzz/judge/trial_runner.h"
#include "tools/bench/synthetic_vocabulary.h"

ABSL_FLAG(uint64_t, seed, 1, "the first seed; each constraint has a seed of its own");
ABSL_FLAG(uint64_t, count, 1000, "random constraints");
ABSL_FLAG(std::string, kind, "", "json, regex or ebnf; empty: the seed chooses");
ABSL_FLAG(
    uint64_t, faults_max, 0,
    "constraints that may meet a limit after their opening, as ambiguous grammars do, without "
    "failing the run");
ABSL_FLAG(int, jobs, 1, "child processes at once");
ABSL_FLAG(bool, minimize, false, "make each finding as small as it can be");
ABSL_FLAG(double, minimize_s, 60, "time for making one finding small");
ABSL_FLAG(bool, print, false, "print every constraint with its outcome");
ABSL_FLAG(bool, quiet, false, "drop what a dying child prints");
ABSL_FLAG(double, cpu_s, 2.5, "processor time of one constraint");
ABSL_FLAG(int64_t, memory_mib, 300, "memory of one constraint; not judged under a sanitizer");
ABSL_FLAG(bool, any_order, false, "every schema with its keys in any order");
ABSL_FLAG(std::string, known, "", "judge the constraints of this file, and large ones, instead");
ABSL_FLAG(std::string, folder, "", "judge every schema below this folder instead");
ABSL_FLAG(std::string, outcomes, "", "with folder: the file to write");
ABSL_FLAG(std::string, expect, "", "with folder: a list to compare with");
ABSL_FLAG(std::string, list, "", "with folder: the list to write, of schemas that are not ok");

namespace specd::grammar {
namespace {

constexpr int kExitFindings = 1;
constexpr int kExitUsage = 2;

TrialRunner::Options RunnerOptions() {
  return {.num_jobs = std::max(1, absl::GetFlag(FLAGS_jobs)),
          .cpu_s = absl::GetFlag(FLAGS_cpu_s),
          .memory_bytes = absl::GetFlag(FLAGS_memory_mib) << 20,
          .is_quiet = absl::GetFlag(FLAGS_quiet)};
}

int Fail(std::string_view message) {
  fmt::print(stderr, "specd_grammar_judge: {}\n", message);
  return kExitUsage;
}

struct Walks {
  int count;
  int num_tokens;  // of each
};
constexpr Walks kRandomWalks = {.count = 2, .num_tokens = 24};
// There are few known constraints, so each is followed for longer.
constexpr Walks kKnownWalks = {.count = 8, .num_tokens = 100};

// What the trials of one run have in common.
class Judge {
 public:
  explicit Judge(const Walks& walks)
      : vocabulary_(bench::SyntheticVocabulary::kSizeMin),
        compiler_(std::make_unique<GrammarCompiler>(
            GrammarCompilerOptions{.vocabulary = &vocabulary_.vocabulary(),
                                   .vocab_size = bench::SyntheticVocabulary::kSizeMin})),
        trial_(compiler_.get(), {.eos_id = vocabulary_.eos_id(),
                                 .vocab_size = bench::SyntheticVocabulary::kSizeMin,
                                 .num_walks = walks.count,
                                 .num_tokens = walks.num_tokens}) {}

  int RunRandom() {
    const GrammarKind kind = KindOf(absl::GetFlag(FLAGS_kind));
    const uint64_t first = absl::GetFlag(FLAGS_seed);
    return RunAll(
        absl::GetFlag(FLAGS_count),
        [=](uint64_t index) { return DrawConstraint(kind, first + index); },
        [=](uint64_t index) { return fmt::format("seed {}", first + index); });
  }

  int RunKnown(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) return Fail("cannot read " + path);
    absl::StatusOr<std::vector<KnownConstraint>> known = ParseKnown(text);
    if (!known.ok()) return Fail(std::string(known.status().message()));
    for (KnownConstraint& large : LargeConstraints()) known->push_back(std::move(large));
    // Each strictly, and then leniently.
    return RunAll(
        known->size() * 2,
        [&](uint64_t index) {
          GrammarRequest request = (*known)[index / 2].request;
          request.lenient = index % 2 == 1;
          return request;
        },
        [&](uint64_t index) { return (*known)[index / 2].name; });
  }

 private:
  using Make = std::function<GrammarRequest(uint64_t index)>;
  using Name = std::function<std::string(uint64_t index)>;

  int RunAll(uint64_t count, const Make& make_plain, const Name& name) {
    const Make make = [&](uint64_t index) {
      GrammarRequest request = make_plain(index);
      if (absl::GetFlag(FLAGS_any_order)) request.key_order = KeyOrder::kAny;
      return request;
    };
    std::vector<std::pair<uint64_t, TrialResult>> findings;
    TrialRunner(RunnerOptions())
        .Run(
            count,
            [&](uint64_t index, absl::FunctionRef<void()> opened) {
              return trial_.Run(make(index), index, opened);
            },
            [&](uint64_t index, const TrialResult& result) {
              Count(result, count);
              if (absl::GetFlag(FLAGS_print)) PrintTrial(name(index), make(index), result);
              if (!IsFinding(result.outcome)) return true;
              findings.emplace_back(index, result);
              PrintFinding(name(index), make(index), result);
              return true;
            });
    if (absl::GetFlag(FLAGS_minimize)) {
      for (const auto& [index, result] : findings) Shrink(name(index), make(index), result);
    }
    PrintCounts();
    const auto num_faults =
        static_cast<uint64_t>(std::count_if(findings.begin(), findings.end(), [](const auto& one) {
          return one.second.outcome == Outcome::kFault;
        }));
    const bool is_fine =
        num_faults == findings.size() && num_faults <= absl::GetFlag(FLAGS_faults_max);
    return is_fine ? 0 : kExitFindings;
  }

  static void PrintTrial(const std::string& name, const GrammarRequest& request,
                         const TrialResult& result) {
    constexpr size_t kShownBytes = 300;
    fmt::print("{}: {}: {:.1f} ms, mask {:.1f} ms, {} MiB: {}\n  {}\n", name,
               OutcomeName(result.outcome), result.cpu_ms, result.first_mask_ms,
               result.peak_bytes >> 20, result.detail, LineOfKnown(request).substr(0, kShownBytes));
  }

  static void PrintFinding(const std::string& name, const GrammarRequest& request,
                           const TrialResult& result) {
    constexpr size_t kShownBytes = 4000;
    ClearProgress();
    fmt::print("finding: {}{}{}{}: {}: {}\n  {}\n", name, request.lenient ? ", lenient" : "",
               request.whitespace == Whitespace::kCompact ? ", compact" : "",
               request.key_order == KeyOrder::kAny ? ", any order" : "",
               OutcomeName(result.outcome), result.detail,
               LineOfKnown(request).substr(0, kShownBytes));
    std::fflush(stdout);
  }

  // Takes the first smaller text with the same outcome, as often as there is one.
  void Shrink(const std::string& name, GrammarRequest request, const TrialResult& found) {
    TrialRunner::Options options = RunnerOptions();
    options.is_quiet = true;
    options.batch = 20;
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::duration<double>(absl::GetFlag(FLAGS_minimize_s));
    while (std::chrono::steady_clock::now() < end) {
      const std::vector<std::string> texts = SmallerConstraints(request);
      size_t smaller = texts.size();
      TrialRunner(options).Run(
          texts.size(),
          [&](uint64_t index, absl::FunctionRef<void()> opened) {
            GrammarRequest part = request;
            part.text = texts[index];
            return trial_.Run(part, index, opened);
          },
          [&](uint64_t index, const TrialResult& result) {
            if (std::chrono::steady_clock::now() >= end) return false;
            if (result.outcome != found.outcome) return true;
            smaller = index;
            return false;
          });
      if (smaller == texts.size()) break;
      request.text = texts[smaller];
      ShowProgress(fmt::format("{}: {} bytes", name, request.text.size()));
    }
    PrintFinding("minimized " + name, request, found);
  }

  void Count(const TrialResult& result, uint64_t count) {
    ++counts_[static_cast<size_t>(result.outcome)];
    if (result.outcome == Outcome::kRefused) ++reasons_[ReasonOf(result.detail)];
    cpu_ms_ += result.cpu_ms;
    slowest_ms_ = std::max(slowest_ms_, result.cpu_ms + result.first_mask_ms);
    peak_bytes_ = std::max(peak_bytes_, result.peak_bytes);
    if (++num_done_ % 64 != 0) return;
    ShowProgress(fmt::format("{} of {} constraints, {} findings", num_done_, count,
                             num_done_ - counts_[0] - counts_[1]));
  }

  void PrintCounts() const {
    constexpr size_t kReasonsShown = 12;
    ClearProgress();
    fmt::print("{} constraints:", num_done_);
    for (size_t i = 0; i < kNumOutcomes; ++i) {
      fmt::print(" {} {}", counts_[i], OutcomeName(static_cast<Outcome>(i)));
    }
    fmt::print("; compiles took {:.1f} s, the slowest {:.0f} ms; the largest {} MiB\n",
               cpu_ms_ / 1e3, slowest_ms_, peak_bytes_ >> 20);
    std::vector<std::pair<uint64_t, std::string>> frequent;
    for (const auto& [reason, num] : reasons_) frequent.emplace_back(num, reason);
    std::sort(frequent.rbegin(), frequent.rend());
    frequent.resize(std::min(frequent.size(), kReasonsShown));
    for (const auto& [num, reason] : frequent) fmt::print("  {:>7} {}\n", num, reason);
  }

  static void ShowProgress(const std::string& text) {
    if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\x1b[K{}", text);
  }
  static void ClearProgress() { ShowProgress(""); }

  const bench::SyntheticVocabulary vocabulary_;
  const std::unique_ptr<GrammarCompiler> compiler_;
  const Trial trial_;
  uint64_t num_done_ = 0;
  uint64_t counts_[kNumOutcomes] = {};
  std::map<std::string, uint64_t> reasons_;
  double cpu_ms_ = 0;
  double slowest_ms_ = 0;
  int64_t peak_bytes_ = 0;
};

int RunFolder() {
  const absl::Status status = SchemaFolder({.folder = absl::GetFlag(FLAGS_folder),
                                            .outcomes = absl::GetFlag(FLAGS_outcomes),
                                            .expect = absl::GetFlag(FLAGS_expect),
                                            .list = absl::GetFlag(FLAGS_list),
                                            .any_order = absl::GetFlag(FLAGS_any_order),
                                            .runner = RunnerOptions()})
                                  .Run();
  if (status.ok()) return 0;
  const std::string message(status.message());
  if (status.code() != absl::StatusCode::kAborted) return Fail(message);
  fmt::print("{}\n", message);
  return kExitFindings;
}

int Main() {
  if (!absl::GetFlag(FLAGS_folder).empty()) return RunFolder();
  const std::string kind = absl::GetFlag(FLAGS_kind);
  const GrammarKind known = KindOf(kind);
  if (!kind.empty() && (known == GrammarKind::kNone || known == GrammarKind::kChoice)) {
    return Fail("kind = " + kind + " is none of json, regex, ebnf");
  }
  const std::string path = absl::GetFlag(FLAGS_known);
  return path.empty() ? Judge(kRandomWalks).RunRandom() : Judge(kKnownWalks).RunKnown(path);
}

}  // namespace
}  // namespace specd::grammar

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("judges the compiler of grammars; see --help");
  absl::ParseCommandLine(argc, argv);
  return specd::grammar::Main();
}
