#include "tools/replay/diff_command.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/replay/names.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/step_comparison.h"
#include "tools/replay/step_digest.h"

namespace specd::replay {
namespace {

// The steps of one sequence in one run.
struct Run {
  SequenceHandle sequence = 0;
  std::vector<StepDigest> steps;
  std::vector<TokenId> text;  // the confirmed tokens, from the first recorded step on
  uint32_t first_position = 0;
};

// Sequences by request id. Equal request ids are numbered in their order.
using Runs = std::map<std::pair<std::string, int>, Run>;

class Indexer {
 public:
  Indexer(const CommandOptions& options, const std::vector<std::string>& files)
      : options_(options), reader_(files) {}

  absl::StatusOr<Runs> Index() {
    TraceItem item;
    for (;;) {
      const absl::StatusOr<bool> more = reader_.Next(&item);
      if (!more.ok()) return more.status();
      if (!*more) break;
      book_.Take(item);
      const auto* const round = std::get_if<TraceRound>(&item.record);
      if (round == nullptr) continue;
      for (const TraceTask& task : round->tasks) Take(*round, task);
    }
    PrintWarnings(reader_);
    return Named();
  }

 private:
  void Take(const TraceRound& round, const TraceTask& task) {
    const TraceAnswer* const answer = AnswerOf(round, task);
    if (answer == nullptr) return;
    const std::string_view request = book_.RequestOf(answer->sequence);
    if (!options_.filter.TakesSequence(answer->sequence, request)) return;
    const size_t index = book_.IndexOf(answer->sequence);
    if (index >= runs_.size()) runs_.resize(index + 1);
    Run& run = runs_[index];
    run.sequence = answer->sequence;
    if (run.steps.empty()) run.first_position = task.first_position;
    run.steps.push_back(DigestOf(round, task));
    run.text.insert(run.text.end(), task.confirmed.begin(), task.confirmed.end());
  }

  Runs Named() {
    Runs named;
    std::map<std::string, int> counts;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].steps.empty()) continue;
      const std::string& request = book_.entries()[i].opening.request_id;
      named[{request, counts[request]++}] = std::move(runs_[i]);
    }
    return named;
  }

  const CommandOptions& options_;
  TraceReader reader_;
  SequenceBook book_;
  std::vector<Run> runs_;  // by index of the book
};

// The records of one step, read again.
struct Step {
  TraceRound round;
  size_t task = 0;
};

absl::StatusOr<Step> ReadStep(const std::vector<std::string>& files, uint64_t number,
                              SequenceHandle sequence) {
  TraceReader reader(files);
  TraceItem item;
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(&item);
    if (!more.ok()) return more.status();
    if (!*more) return absl::NotFoundError(fmt::format("{}: round {} is gone", files[0], number));
    auto* const round = std::get_if<TraceRound>(&item.record);
    if (round == nullptr || round->number != number) continue;
    for (size_t i = 0; i < round->tasks.size(); ++i) {
      const TraceAnswer* const answer = AnswerOf(*round, round->tasks[i]);
      if (answer == nullptr || answer->sequence != sequence) continue;
      return Step{std::move(*round), i};
    }
  }
}

class Diff {
 public:
  explicit Diff(const CommandOptions& options) : options_(options) {}

  absl::StatusOr<int> Run() {
    for (size_t i = 0; i < 2; ++i) {
      absl::StatusOr<std::vector<std::string>> files = TraceFilesOf({options_.paths[i]});
      if (!files.ok()) return files.status();
      files_[i] = *std::move(files);
    }
    absl::StatusOr<Runs> a = Indexer(options_, files_[0]).Index();
    if (!a.ok()) return a.status();
    absl::StatusOr<Runs> b = Indexer(options_, files_[1]).Index();
    if (!b.ok()) return b.status();
    uint64_t num_common = 0;
    for (const auto& [name, run] : *a) {
      const auto found = b->find(name);
      if (found == b->end()) {
        ++num_alone_;
        continue;
      }
      ++num_common;
      if (absl::Status status = Compare(name, run, found->second); !status.ok()) return status;
    }
    for (const auto& [name, run] : *b) num_alone_ += a->contains(name) ? 0 : 1;
    if (num_common == 0) {
      return absl::NotFoundError("the runs have no request id in common, so nothing is compared");
    }
    fmt::print("{}{} sequences in both runs, {} of them differ; {} in one run only\n",
               num_different_ > 0 ? "\n" : "", num_common, num_different_, num_alone_);
    if (num_without_masks_ > 0) {
      fmt::print("the masks of {} rounds were not recorded in both runs, and not compared\n",
                 num_without_masks_);
    }
    // With a filter the sequences that it takes are compared, and others are not missed.
    const bool misses = num_alone_ > 0 && options_.filter.TakesEverySequence();
    return num_different_ > 0 || misses ? kExitDifferent : kExitOk;
  }

 private:
  using Name = std::pair<std::string, int>;

  absl::Status Compare(const Name& name, const struct Run& a, const struct Run& b) {
    size_t step = 0;
    while (step < a.steps.size() && step < b.steps.size() &&
           a.steps[step].MayEqual(b.steps[step])) {
      if (a.steps[step].LacksMasks(b.steps[step])) ++num_without_masks_;
      ++step;
    }
    const bool is_a_over = step == a.steps.size();
    const bool is_b_over = step == b.steps.size();
    if (is_a_over && is_b_over) return absl::OkStatus();
    if (num_different_++ >= static_cast<uint64_t>(options_.limit)) return absl::OkStatus();
    const std::string label =
        name.second == 0 ? name.first : fmt::format("{} ({})", name.first, name.second + 1);
    fmt::print("{}\n", options_.paint(Colour::kBold, fmt::format("request {}", Printable(label))));
    if (is_a_over || is_b_over) {
      fmt::print("  equal for {} rounds; then {} goes on alone\n", step, is_a_over ? "B" : "A");
      return absl::OkStatus();
    }
    fmt::print("  equal for {} rounds; first difference in round {} of A and {} of B\n", step,
               a.steps[step].round, b.steps[step].round);
    if (absl::Status status = Explain(a, b, step); !status.ok()) return status;
    PrintText(a, b);
    return absl::OkStatus();
  }

  absl::Status Explain(const struct Run& a, const struct Run& b, size_t step) {
    const absl::StatusOr<Step> in_a = ReadStep(files_[0], a.steps[step].round, a.sequence);
    if (!in_a.ok()) return in_a.status();
    const absl::StatusOr<Step> in_b = ReadStep(files_[1], b.steps[step].round, b.sequence);
    if (!in_b.ok()) return in_b.status();
    for (const StepDifference& difference :
         CompareSteps(in_a->round, in_a->round.tasks[in_a->task], in_b->round,
                      in_b->round.tasks[in_b->task])) {
      const bool is_bug = difference.cause == "decision";
      fmt::print("  {}: {}\n",
                 options_.paint(is_bug ? Colour::kRed : Colour::kYellow, difference.cause),
                 difference.text);
    }
    return absl::OkStatus();
  }

  static void PrintText(const struct Run& a, const struct Run& b) {
    if (a.first_position != b.first_position) return;
    size_t i = 0;
    while (i < a.text.size() && i < b.text.size() && a.text[i] == b.text[i]) ++i;
    if (i == a.text.size() || i == b.text.size()) {
      fmt::print("  the confirmed tokens are the same, as far as both go\n");
      return;
    }
    fmt::print("  the confirmed tokens differ from position {} on: {} in A, {} in B\n",
               a.first_position + i, a.text[i], b.text[i]);
  }

  const CommandOptions& options_;
  std::vector<std::string> files_[2];  // of A and of B
  uint64_t num_different_ = 0;
  uint64_t num_alone_ = 0;
  uint64_t num_without_masks_ = 0;
};

}  // namespace

absl::StatusOr<int> RunDiff(const CommandOptions& options) {
  if (options.paths.size() != 2) {
    return absl::InvalidArgumentError(
        "give two traces, one of each run; a directory stands for the files of a rotated "
        "recording");
  }
  return Diff(options).Run();
}

}  // namespace specd::replay
