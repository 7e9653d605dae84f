#include "tools/replay/diff_command.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/replay/names.h"
#include "tools/replay/opening_comparison.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/step_comparison.h"
#include "tools/replay/step_digest.h"

namespace specd::replay {
namespace {

// A device that gets draft tokens by slot knows what follows the end of a draft, and a host does
// not. No processor reads it.
void DropBehindEnd(TraceTask* task, int32_t vocab_size) {
  const uint32_t drawn = NumDrawn(*task, vocab_size);
  const auto cut = [](auto* list, uint32_t size) {
    if (list->size() > size) list->resize(size);
  };
  cut(&task->tokens, drawn);
  cut(&task->kinds, drawn);
  cut(&task->draft_weights, drawn);
  cut(&task->draft_masses, drawn);
  cut(&task->places, drawn + 1);
}

// The steps of one sequence in one run.
struct Run {
  SequenceHandle sequence = 0;
  std::vector<StepDigest> steps;
  std::vector<TokenId> text;  // the confirmed tokens, from the first recorded step on
  uint32_t first_position = 0;
  std::optional<TraceOpening> opening;  // nothing: the trace does not name it
  // Nothing: the trace does not have its end. kNone: it was closed before it ended.
  std::optional<FinishReason> reason;
  uint32_t total_kept = 0;
  bool knows_parameters = true;  // false: of a fork whose parent the trace does not name
};

struct Runs {
  TraceInfo info;  // of the first file
  // Sequences by request id. Equal request ids are numbered in their order.
  std::map<std::pair<std::string, int>, Run> sequences;
};

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
      const auto* const info = std::get_if<TraceInfo>(&item.record);
      if (info != nullptr && item.file == 0) info_ = *info;
      auto* const round = std::get_if<TraceRound>(&item.record);
      if (round == nullptr) continue;
      for (TraceTask& task : round->tasks) {
        DropBehindEnd(&task, book_.vocab_size());
        Take(*round, task);
      }
    }
    PrintWarnings(reader_.warnings());
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
    named.info = info_;
    std::map<std::string, int> counts;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].steps.empty()) continue;
      const SequenceEntry& entry = book_.entries()[i];
      if (entry.has_opening) runs_[i].opening = entry.opening;
      runs_[i].knows_parameters = KnowsParameters(entry.opening);
      if (entry.has_ended) runs_[i].reason = entry.reason;
      runs_[i].total_kept = entry.total_kept;
      const std::string& request = entry.opening.request_id;
      named.sequences[{request, counts[request]++}] = std::move(runs_[i]);
    }
    return named;
  }

  bool KnowsParameters(const TraceOpening& opening) const {
    if (opening.forked_from == 0) return true;
    const SequenceEntry* const parent = book_.Find(opening.forked_from);
    return parent != nullptr && parent->has_opening;
  }

  const CommandOptions& options_;
  TraceReader reader_;
  SequenceBook book_;
  TraceInfo info_;
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
  SequenceBook book;  // for the vocabulary
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(&item);
    if (!more.ok()) return more.status();
    if (!*more) return absl::NotFoundError(fmt::format("{}: round {} is gone", files[0], number));
    book.Take(item);
    auto* const round = std::get_if<TraceRound>(&item.record);
    if (round == nullptr || round->number != number) continue;
    for (size_t i = 0; i < round->tasks.size(); ++i) {
      const TraceAnswer* const answer = AnswerOf(*round, round->tasks[i]);
      if (answer == nullptr || answer->sequence != sequence) continue;
      DropBehindEnd(&round->tasks[i], book.vocab_size());
      return Step{std::move(*round), i};
    }
  }
}

class Diff {
 public:
  explicit Diff(const CommandOptions& options) : options_(options) {}

  absl::StatusOr<int> Run() {
    for (size_t i = 0; i < 2; ++i) {
      absl::StatusOr<std::vector<Recording>> found =
          FindRecordings({options_.paths[i]}, options_.choices[i]);
      if (!found.ok()) return found.status();
      if (found->size() > 1) return TooMany(*found);
      files_[i] = std::move((*found)[0].files);
    }
    absl::StatusOr<Runs> a = Indexer(options_, files_[0]).Index();
    if (!a.ok()) return a.status();
    absl::StatusOr<Runs> b = Indexer(options_, files_[1]).Index();
    if (!b.ok()) return b.status();
    if (absl::Status status = CheckIds(a->info, b->info); !status.ok()) return status;
    models_ = CompareModels(a->info, b->info);
    uint64_t num_common = 0;
    for (const auto& [name, run] : a->sequences) {
      const auto found = b->sequences.find(name);
      if (found == b->sequences.end()) {
        ++num_alone_;
        continue;
      }
      ++num_common;
      if (absl::Status status = Compare(name, run, found->second); !status.ok()) return status;
    }
    for (const auto& [name, run] : b->sequences) num_alone_ += a->sequences.contains(name) ? 0 : 1;
    if (a->sequences.empty() && b->sequences.empty()) return NothingPasses(options_);
    if (num_common == 0) {
      return absl::NotFoundError("the runs have no request id in common, so nothing is compared");
    }
    fmt::print("{}{} sequences in both runs, {} of them differ; {} in one run only\n",
               num_different_ > 0 ? "\n" : "", num_common, num_different_, num_alone_);
    if (num_without_masks_ > 0) {
      fmt::print("the masks of {} rounds were not recorded in both runs, and not compared\n",
                 num_without_masks_);
    }
    if (num_without_rows_ > 0) {
      fmt::print(
          "the rows of {} rounds were not recorded in both runs: these rounds are consistent, and "
          "not known to be equal\n",
          num_without_rows_);
    }
    // With a filter the sequences that it takes are compared, and others are not missed.
    const bool misses = num_alone_ > 0 && options_.filter.TakesEverySequence();
    return num_different_ > 0 || misses ? kExitDifferent : kExitOk;
  }

 private:
  // The ids of an anonymised trace are other numbers than those of the recording.
  absl::Status CheckIds(const TraceInfo& a, const TraceInfo& b) const {
    if (a.anonymised == b.anonymised) return absl::OkStatus();
    const std::string& hidden = files_[a.anonymised ? 0 : 1][0];
    const std::string& plain = files_[a.anonymised ? 1 : 0][0];
    return absl::InvalidArgumentError(fmt::format(
        "{} is anonymised and {} is not, so their ids cannot be compared; give the recording that "
        "{} was made of, or anonymise the other: \"specd-replay anonymise {} -o OUT.mcap\"",
        hidden, plain, hidden, plain));
  }

  using Name = std::pair<std::string, int>;

  absl::Status Compare(const Name& name, const struct Run& a, const struct Run& b) {
    size_t step = 0;
    uint64_t num_without_rows = 0;
    while (step < a.steps.size() && step < b.steps.size() &&
           a.steps[step].MayEqual(b.steps[step])) {
      if (a.steps[step].LacksMasks(b.steps[step])) ++num_without_masks_;
      if (a.steps[step].LacksRows(b.steps[step])) ++num_without_rows;
      ++step;
    }
    num_without_rows_ += num_without_rows;
    const std::string_view alike = num_without_rows > 0 ? "consistent" : "equal";
    const bool is_a_over = step == a.steps.size();
    const bool is_b_over = step == b.steps.size();
    const std::string end = is_a_over && is_b_over ? EndText(a, b) : std::string();
    if (is_a_over && is_b_over && end.empty()) return absl::OkStatus();
    if (num_different_++ >= static_cast<uint64_t>(options_.limit)) return absl::OkStatus();
    const std::string label =
        name.second == 0 ? name.first : fmt::format("{} ({})", name.first, name.second + 1);
    fmt::print("{}\n", options_.paint(Colour::kBold, fmt::format("request {}", SafeText(label))));
    if (!end.empty()) {
      fmt::print("  {} for all {} rounds, with another end\n", alike, step);
      PrintOpenings(a, b);
      PrintCause(Colour::kYellow, "end", end);
      return absl::OkStatus();
    }
    if (is_a_over || is_b_over) {
      fmt::print("  {} for {} rounds; then {} goes on alone\n", alike, step, is_a_over ? "B" : "A");
      PrintOpenings(a, b);
      return absl::OkStatus();
    }
    fmt::print("  {} for {} rounds; first difference in round {} of A and {} of B\n", alike, step,
               a.steps[step].round, b.steps[step].round);
    PrintOpenings(a, b);
    if (absl::Status status = Explain(a, b, step); !status.ok()) return status;
    PrintText(a, b);
    return absl::OkStatus();
  }

  // An abort, a stop string of the text side, or a close; empty: the ends are the same, or one of
  // the traces has none.
  static std::string EndText(const struct Run& a, const struct Run& b) {
    if (!a.reason || !b.reason) return {};
    if (*a.reason != *b.reason) {
      const auto text = [](FinishReason reason) {
        return reason == FinishReason::kNone ? std::string("closed")
                                             : "finished by " + std::string(NameOf(reason));
      };
      return fmt::format("the sequence is {} in A and {} in B", text(*a.reason), text(*b.reason));
    }
    if (a.total_kept == b.total_kept) return {};
    return fmt::format("{} tokens are kept in A and {} in B", a.total_kept, b.total_kept);
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
      PrintCause(is_bug ? Colour::kRed : Colour::kYellow, difference.cause, difference.text);
    }
    return absl::OkStatus();
  }

  void PrintCause(Colour colour, std::string_view cause, std::string_view text) const {
    fmt::print("  {}: {}\n", options_.paint(colour, cause), SafeText(text));
  }

  // The parameters that no round records end a sequence, or explain what its rounds record.
  void PrintOpenings(const struct Run& a, const struct Run& b) const {
    for (const std::string& text : models_) PrintCause(Colour::kYellow, "parameters", text);
    if (!a.opening || !b.opening) return;
    const auto parts = a.knows_parameters && b.knows_parameters ? OpeningParts::kAll
                                                                : OpeningParts::kWithoutParameters;
    for (const std::string& text : CompareOpenings(*a.opening, *b.opening, parts)) {
      PrintCause(Colour::kYellow, "parameters", text);
    }
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
  std::vector<std::string> models_;    // what differs between the engines
  uint64_t num_different_ = 0;
  uint64_t num_alone_ = 0;
  uint64_t num_without_masks_ = 0;
  uint64_t num_without_rows_ = 0;
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
