#include "tools/replay/verify_command.h"

#include <fmt/format.h>

#include "daemon/trace/parameter_hash.h"
#include "tools/replay/answer_book.h"
#include "tools/replay/answer_check.h"
#include "tools/replay/grammar_check.h"
#include "tools/replay/named_backend.h"
#include "tools/replay/names.h"
#include "tools/replay/round_rebuilder.h"
#include "tools/replay/scalar_check.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/task_rules.h"

namespace specd::replay {
namespace {

// Parameters that are not those that were recorded, whether they change an answer or not.
std::vector<std::string> CheckHashes(const TraceRound& round, const TraceTask& task,
                                     int32_t vocab_size) {
  std::vector<std::string> differences;
  const auto expect = [&](bool fits, std::string_view what) {
    if (fits) return;
    differences.push_back(fmt::format("parameters: the record's hash does not fit {}", what));
  };
  const bool has_lists = round.level == TraceLevel::kRows && task.edits_hash != 0;
  expect(task.parameters_hash == 0 || task.parameters_hash == ParametersHash(task),
         "the numbers of the task");
  expect(!has_lists || task.edits_hash == RecordedEditsHash(task), "the token edits");
  expect(!has_lists || task.overrides_hash == RecordedOverridesHash(task, vocab_size),
         "the token edits of the places");
  return differences;
}

class Verification {
 public:
  Verification(TraceReader* reader, ReplayBackend* backend, const CommandOptions& options)
      : reader_(reader), backend_(backend), options_(options) {}

  absl::StatusOr<VerifyReport> Run() {
    TraceItem item;
    for (;;) {
      const absl::StatusOr<bool> more = reader_->Next(&item);
      if (!more.ok()) return more.status();
      if (!*more) {
        report_.num_states_not_compared = grammar_.num_not_compared();
        return std::move(report_);
      }
      book_.Take(item);
      answers_.Take(item.record);
      const auto* const end = std::get_if<TraceEnd>(&item.record);
      if (end != nullptr && end->reason == FinishReason::kNone) grammar_.Forget(end->sequence);
      const auto* const round = std::get_if<TraceRound>(&item.record);
      if (round == nullptr) continue;
      const AnswerTexts texts = CheckAnswers(*round);
      if (!options_.filter.TakesRound(round->number)) continue;
      if (absl::Status status = Take(*round, texts); !status.ok()) return status;
    }
  }

 private:
  // The differences in what the engine was told, by answer of the round.
  using AnswerTexts = std::vector<std::vector<std::string>>;

  // Every round has its turn, also one that the filters leave out: the next one follows it.
  AnswerTexts CheckAnswers(const TraceRound& round) {
    std::vector<const TraceTask*> tasks(round.answers.size(), nullptr);
    for (const TraceTask& task : round.tasks) {
      if (task.answer < tasks.size()) tasks[task.answer] = &task;
    }
    AnswerTexts texts(round.answers.size());
    const int32_t vocab_size = reader_->info()->vocab_size;
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i] == nullptr || CheckTask(round, *tasks[i], vocab_size).ok()) {
        texts[i] = answers_.Check(round, round.answers[i], tasks[i]);
      } else {
        answers_.Forget(round.answers[i].sequence);
      }
    }
    return texts;
  }

  bool TakesSequence(SequenceHandle sequence) const {
    return options_.filter.TakesSequence(sequence, book_.RequestOf(sequence));
  }

  absl::Status Take(const TraceRound& round, const AnswerTexts& texts) {
    const int32_t vocab_size = reader_->info()->vocab_size;
    RoundRebuilder rebuilder(vocab_size);
    absl::StatusOr<const RowFileReader*> rows = nullptr;
    if (options_.with_rows) rows = reader_->RowsOf(round);
    if (!rows.ok()) return WithoutRows(rows.status());
    rebuilder.Rebuild(round, *rows);
    if (!rebuilder.damage().ok()) return WithoutRows(rebuilder.damage());
    grammar_.Begin(round);
    if (absl::Status status = backend_->Run(&rebuilder); !status.ok()) return status;
    size_t in_batch = 0;
    for (size_t i = 0; i < round.tasks.size(); ++i) {
      const bool is_run = rebuilder.WhyNot(i).ok();
      const size_t place = in_batch;
      if (is_run) ++in_batch;
      const TraceAnswer* const answer = AnswerOf(round, round.tasks[i]);
      const SequenceHandle sequence = answer == nullptr ? 0 : answer->sequence;
      if (!TakesSequence(sequence)) continue;
      Check(round, i, sequence, rebuilder, is_run ? &place : nullptr,
            answer == nullptr ? std::vector<std::string>() : texts[round.tasks[i].answer]);
    }
    CheckTheRest(round, texts);
    return absl::OkStatus();
  }

  // The answers that no task is of.
  void CheckTheRest(const TraceRound& round, const AnswerTexts& texts) {
    std::vector<bool> has_task(round.answers.size(), false);
    for (const TraceTask& task : round.tasks) {
      if (task.answer < has_task.size()) has_task[task.answer] = true;
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      const SequenceHandle sequence = round.answers[i].sequence;
      if (has_task[i] || texts[i].empty() || !TakesSequence(sequence)) continue;
      Differ(round, sequence, texts[i]);
    }
  }

  static absl::Status WithoutRows(const absl::Status& status) {
    return absl::Status(status.code(),
                        fmt::format("{}; give --no-rows to check the recorded numbers alone",
                                    std::string(status.message())));
  }

  // `in_batch` is null if the task was not run again.
  void Check(const TraceRound& round, size_t i, SequenceHandle sequence,
             const RoundRebuilder& rebuilder, const size_t* in_batch,
             std::vector<std::string> differences) {
    const TraceTask& task = round.tasks[i];
    const int32_t vocab_size = reader_->info()->vocab_size;
    const absl::Status& why_not = rebuilder.WhyNot(i);
    if (in_batch == nullptr) report_.why_not.Add(std::string(why_not.message()));
    // Such a record is not one that a recorder wrote.
    if (absl::IsInvalidArgument(why_not)) {
      return Differ(
          round, sequence,
          {fmt::format("the record is not consistent: {}", std::string(why_not.message()))});
    }
    for (std::string& text : CheckHashes(round, task, vocab_size)) {
      differences.push_back(std::move(text));
    }
    if (round.status != RoundStatus::kOk || !CheckTask(round, task, vocab_size).ok()) {
      if (!differences.empty()) return Differ(round, sequence, differences);
      ++report_.num_not_checkable;
      return;
    }
    const ScalarFindings scalars = CheckScalars(task, vocab_size);
    for (std::string& text : grammar_.Check(task, sequence)) differences.push_back(std::move(text));
    differences.insert(differences.end(), scalars.differences.begin(), scalars.differences.end());
    if (in_batch != nullptr) {
      for (std::string& text : CompareAnswers(task, rebuilder, *in_batch, round.staged)) {
        differences.push_back(std::move(text));
      }
    }
    if (!differences.empty()) return Differ(round, sequence, differences);
    if (in_batch != nullptr) {
      ++report_.num_equal_by_rows;
    } else if (HasNumbers(task)) {
      ++report_.num_equal_by_scalars;
    } else {
      ++report_.num_not_checkable;
    }
  }

  // Without decisions only the form of the outcome can be checked, which says little. CheckScalars
  // leaves out those of a task that continues rounds.
  static bool HasNumbers(const TraceTask& task) {
    if (task.continues) return false;
    for (const PlaceDecision& decision : task.decisions) {
      if (decision.judged) return true;
    }
    return !task.target_argmax.empty();
  }

  void Differ(const TraceRound& round, SequenceHandle sequence,
              const std::vector<std::string>& texts) {
    ++report_.num_different;
    for (const std::string& text : texts) {
      if (report_.differences.size() >= static_cast<size_t>(options_.limit)) return;
      report_.differences.push_back({round.number, sequence, text});
    }
  }

  TraceReader* reader_;
  ReplayBackend* backend_;
  const CommandOptions& options_;
  SequenceBook book_{SequenceBook::Keep::kOpen};
  AnswerBook answers_;
  GrammarCheck grammar_;
  VerifyReport report_;
};

void Print(const VerifyReport& report, const CommandOptions& options) {
  const auto line = [&](std::string_view name, uint64_t count, Colour colour,
                        std::string_view meaning) {
    fmt::print("{:<15} {:>9}{}{}\n", name,
               options.paint(count > 0 ? colour : Colour::kNone, fmt::format("{}", count)),
               meaning.empty() ? "" : "  ", meaning);
  };
  fmt::print("sequence-rounds, on backend {}\n", options.backend);
  line("equal", report.num_equal_by_rows, Colour::kGreen, "run again, to the bit");
  line("consistent", report.num_equal_by_scalars, Colour::kGreen, "by the recorded numbers alone");
  line("different", report.num_different, Colour::kRed, "");
  line("not checkable", report.num_not_checkable, Colour::kYellow, "");
  if (!report.why_not.empty()) fmt::print("\nnot run again, because\n");
  for (const auto& reason : report.why_not) {
    fmt::print("{:>9}  {}\n", reason.second.count, SafeText(TextOf(reason)));
  }
  if (report.num_states_not_compared > 0) {
    fmt::print(
        "\nthe masks of {} grammar states were not compared: more states are open than are "
        "kept\n",
        report.num_states_not_compared);
  }
  if (!report.differences.empty()) fmt::print("\nthe first differences\n");
  for (const VerifyReport::Difference& difference : report.differences) {
    fmt::print("  round {}, sequence {}: {}\n", difference.round, HandleText(difference.sequence),
               SafeText(difference.text));
  }
}

}  // namespace

absl::StatusOr<VerifyReport> VerifyTrace(TraceReader* reader, ReplayBackend* backend,
                                         const CommandOptions& options) {
  return Verification(reader, backend, options).Run();
}

absl::StatusOr<int> RunVerify(const CommandOptions& options) {
  absl::StatusOr<std::unique_ptr<Backend>> made = MakeNamedBackend(options.backend);
  if (!made.ok()) return made.status();
  ReplayBackend backend(*std::move(made), options.threads);
  TraceReader reader(options.paths);
  const absl::StatusOr<VerifyReport> report = VerifyTrace(&reader, &backend, options);
  PrintWarnings(reader.warnings());
  if (!report.ok()) return report.status();
  const uint64_t num_taken = report->num_equal_by_rows + report->num_equal_by_scalars +
                             report->num_different + report->num_not_checkable;
  if (num_taken == 0) return NothingPasses(options);
  Print(*report, options);
  if (report->num_different > 0) return kExitDifferent;
  if (report->num_equal_by_rows + report->num_equal_by_scalars == 0) return kExitError;
  return kExitOk;
}

}  // namespace specd::replay
