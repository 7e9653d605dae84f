#include "tools/replay/list_command.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tools/replay/names.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/trace_reader.h"
#include "tools/terminal/text_table.h"

namespace specd::replay {
namespace {

using Align = TextTable::Align;

Colour ColourOf(RoundStatus status) {
  return status == RoundStatus::kOk || status == RoundStatus::kFinished ? Colour::kNone
                                                                        : Colour::kRed;
}

// One line for each answer of each round.
class RoundList {
 public:
  explicit RoundList(const CommandOptions& options)
      : options_(options),
        table_({{"round"},
                {"time ms"},
                {"sequence", Align::kLeft},
                {"request", Align::kLeft},
                {"method", Align::kLeft},
                {"base"},
                {"drafted"},
                {"accepted"},
                {"kept"},
                {"status", Align::kLeft},
                {"finish", Align::kLeft},
                {"level", Align::kLeft}},
               options.paint) {}

  void Take(const TraceRound& round, const SequenceBook& book, int64_t start_ns) {
    start_ns_ = start_ns;
    if (!options_.filter.TakesRound(round.number)) return;
    std::vector<const TraceTask*> tasks(round.answers.size(), nullptr);
    for (const TraceTask& task : round.tasks) {
      if (task.answer < tasks.size()) tasks[task.answer] = &task;
    }
    for (size_t i = 0; i < round.answers.size(); ++i) {
      const TraceAnswer& answer = round.answers[i];
      const std::string_view request = book.RequestOf(answer.sequence);
      if (!options_.filter.TakesSequence(answer.sequence, request)) continue;
      if (options_.status && answer.status != *options_.status) continue;
      const bool is_rejected =
          tasks[i] != nullptr && HasOutcome(round, *tasks[i]) &&
          tasks[i]->outcome.num_accepted < static_cast<int32_t>(book.NumDrawnOf(*tasks[i]));
      if (options_.only_rejected && !is_rejected) continue;
      Add(round, answer, tasks[i], request, tasks[i] == nullptr ? 0 : book.NumDrawnOf(*tasks[i]));
    }
  }

  uint64_t num_lines() const { return num_lines_; }

 private:
  void Add(const TraceRound& round, const TraceAnswer& answer, const TraceTask* task,
           std::string_view request, uint32_t drafted) {
    ++num_lines_;
    const double time_ms = static_cast<double>(round.times.taken - start_ns_) / 1e6;
    const std::string refusal = answer.refusal == Refusal::kNone
                                    ? std::string(NameOf(answer.status))
                                    : fmt::format("{} ({})", NameOf(answer.status),
                                                  RefusalText(answer.refusal).substr(0, 40));
    const auto number = [&](auto value) {
      return task == nullptr ? std::string("-") : fmt::format("{}", value);
    };
    const int32_t accepted = task == nullptr ? 0 : task->outcome.num_accepted;
    const bool is_full = accepted == static_cast<int32_t>(drafted);
    table_.Add({fmt::format("{}", round.number),
                fmt::format("{:.3f}", time_ms),
                HandleText(answer.sequence),
                std::string(request),
                task == nullptr ? "-" : MethodText(task->method),
                number(task == nullptr ? 0 : task->round_base),
                number(drafted),
                {number(accepted), drafted == 0 ? Colour::kNone
                                   : is_full    ? Colour::kGreen
                                                : Colour::kYellow},
                fmt::format("{}", answer.num_kept),
                {refusal, ColourOf(answer.status)},
                answer.finish_reason == FinishReason::kNone
                    ? ""
                    : std::string(NameOf(answer.finish_reason)),
                std::string(NameOf(round.level))});
  }

  const CommandOptions& options_;
  TextTable table_;
  int64_t start_ns_ = 0;
  uint64_t num_lines_ = 0;
};

uint64_t PrintSequences(const CommandOptions& options, const SequenceBook& book) {
  uint64_t num_lines = 0;
  TextTable table({{"sequence", Align::kLeft},
                   {"request", Align::kLeft},
                   {"method", Align::kLeft},
                   {"constraint", Align::kLeft},
                   {"rounds"},
                   {"first"},
                   {"last"},
                   {"drafted"},
                   {"accepted"},
                   {"rate"},
                   {"tokens"},
                   {"finish", Align::kLeft}},
                  options.paint);
  for (const SequenceEntry& entry : book.entries()) {
    const TraceOpening& opening = entry.opening;
    if (!options.filter.TakesSequence(opening.sequence, opening.request_id)) continue;
    if (options.status && entry.last_status != *options.status) continue;
    if (options.only_rejected && !entry.had_rejection) continue;
    ++num_lines;
    const std::string reason = !entry.has_ended ? ""
                               : entry.reason == FinishReason::kNone
                                   ? "closed"
                                   : std::string(NameOf(entry.reason));
    const bool is_error = entry.reason == FinishReason::kError;
    table.Add({HandleText(opening.sequence),
               opening.request_id,
               MethodText(opening.method),
               opening.constraint,
               fmt::format("{}", entry.num_rounds),
               fmt::format("{}", entry.first_round),
               fmt::format("{}", entry.last_round),
               fmt::format("{}", entry.num_drafted),
               fmt::format("{}", entry.num_accepted),
               entry.num_drafted == 0
                   ? "-"
                   : fmt::format("{:.3f}", double(entry.num_accepted) / double(entry.num_drafted)),
               fmt::format("{}", entry.total_kept),
               {reason, is_error ? Colour::kRed : Colour::kNone}});
  }
  return num_lines;
}

}  // namespace

absl::StatusOr<int> RunList(const CommandOptions& options) {
  TraceReader reader(options.paths);
  SequenceBook book(options.list_of == ListOf::kRounds ? SequenceBook::Keep::kOpen
                                                       : SequenceBook::Keep::kAll);
  uint64_t num_lines = 0;
  {
    RoundList rounds(options);
    TraceItem item;
    for (;;) {
      const absl::StatusOr<bool> more = reader.Next(&item);
      if (!more.ok()) return more.status();
      if (!*more) break;
      const auto* const round = std::get_if<TraceRound>(&item.record);
      if (round == nullptr || options.filter.TakesRound(round->number)) book.Take(item);
      if (round != nullptr && options.list_of == ListOf::kRounds) {
        rounds.Take(*round, book, reader.start_ns());
      }
    }
    num_lines = rounds.num_lines();
  }
  if (options.list_of == ListOf::kSequences) num_lines = PrintSequences(options, book);
  PrintWarnings(reader.warnings());
  if (num_lines == 0) return NothingPasses(options);
  return kExitOk;
}

}  // namespace specd::replay
