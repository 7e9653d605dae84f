#include "tools/replay/show_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/replay/named_backend.h"
#include "tools/replay/names.h"
#include "tools/replay/place_rows.h"
#include "tools/replay/place_view.h"
#include "tools/replay/replay_backend.h"
#include "tools/replay/round_rebuilder.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/task_rules.h"
#include "tools/replay/token_text.h"
#include "tools/replay/tree_table.h"
#include "tools/replay/tree_view.h"
#include "tools/replay/zero_cause.h"
#include "tools/terminal/text_table.h"

namespace specd::replay {
namespace {

using Align = TextTable::Align;

std::string Number(std::optional<double> value) {
  return value ? fmt::format("{:.6f}", *value) : std::string("-");
}

Colour ColourOf(ShownVerdict verdict) {
  switch (verdict) {
    case ShownVerdict::kAccepted:
      return Colour::kGreen;
    case ShownVerdict::kRejected:
    case ShownVerdict::kBadTarget:
    case ShownVerdict::kBadDraft:
      return Colour::kRed;
    case ShownVerdict::kEnds:
      return Colour::kBold;
    case ShownVerdict::kNotJudged:
      break;
  }
  return Colour::kDim;
}

class Show {
 public:
  Show(const CommandOptions& options, TokenText text, std::unique_ptr<Backend> backend)
      : options_(options),
        text_(std::move(text)),
        reader_(options.paths),
        backend_(std::move(backend), 1),
        place_rows_(&backend_) {}

  absl::StatusOr<int> Run(uint64_t number) {
    TraceItem item;
    uint64_t last = 0;
    for (;;) {
      const absl::StatusOr<bool> more = reader_.Next(&item);
      if (!more.ok()) return more.status();
      if (!*more) break;
      book_.Take(item);
      const auto* const round = std::get_if<TraceRound>(&item.record);
      if (round == nullptr) continue;
      last = round->number;
      if (round->number != number) continue;
      const absl::Status status = Print(*round);
      PrintWarnings(reader_.warnings());
      if (!status.ok()) return status;
      return kExitOk;
    }
    PrintWarnings(reader_.warnings());
    return absl::NotFoundError(
        fmt::format("round {} is not in the trace, whose last round is {}", number, last));
  }

 private:
  absl::Status Print(const TraceRound& round) {
    fmt::print("round {} at {:.3f} ms, level {}{}{}\n", round.number,
               static_cast<double>(round.times.taken - reader_.start_ns()) / 1e6,
               NameOf(round.level), round.staged ? ", staged" : "",
               round.on_stream ? ", on a stream" : "");
    if (round.status != RoundStatus::kOk) {
      fmt::print("No task has an outcome: {}\n", NameOf(round.status));
    }
    if (round.no_rows != NoRows::kNone) {
      fmt::print("It has no rows: rows {}\n", NameOf(round.no_rows));
    }
    PrintTimes(round.times);
    const int32_t vocab_size = reader_.info()->vocab_size;
    RoundRebuilder rebuilder(vocab_size);
    const absl::StatusOr<const RowFileReader*> rows = reader_.RowsOf(round);
    rebuilder.Rebuild(round, rows.ok() ? *rows : nullptr);
    if (absl::Status status = backend_.Run(&rebuilder); !status.ok()) return status;
    bool is_found = false;
    std::vector<bool> has_task(round.answers.size(), false);
    for (size_t i = 0; i < round.tasks.size(); ++i) {
      const TraceTask& task = round.tasks[i];
      const TraceAnswer* const answer = AnswerOf(round, task);
      if (answer == nullptr) return absl::InvalidArgumentError("a task has no answer");
      has_task[task.answer] = true;
      if (!Takes(*answer)) continue;
      is_found = true;
      PrintHead(*answer, &task);
      if (const absl::Status status = CheckTask(round, task, vocab_size); !status.ok()) {
        fmt::print("The record cannot be shown: {}\n", SafeText(std::string(status.message())));
        continue;
      }
      if (absl::Status status = PrintTask(task, rebuilder, i); !status.ok()) return status;
    }
    for (size_t i = 0; i < round.answers.size(); ++i) {
      if (has_task[i] || !Takes(round.answers[i])) continue;
      is_found = true;
      PrintHead(round.answers[i], nullptr);
    }
    if (!is_found) {
      return absl::NotFoundError("no sequence of the round passes --sequence and --request");
    }
    // The numbers are shown all the same.
    const absl::Status missing = rows.ok() ? rebuilder.damage() : rows.status();
    if (missing.ok() || options_.top == 0) return absl::OkStatus();
    return absl::Status(missing.code(), fmt::format("{}; give --top=0 to do without candidates",
                                                    std::string(missing.message())));
  }

  bool Takes(const TraceAnswer& answer) const {
    return options_.filter.TakesSequence(answer.sequence, book_.RequestOf(answer.sequence));
  }

  static void PrintTimes(const TraceTimes& times) {
    const struct {
      std::string_view name;
      int64_t from;
      int64_t to;
    } stages[] = {{"waited", times.submitted, times.taken},
                  {"packed", times.taken, times.packed},
                  {"ran", times.packed, times.ran},
                  {"committed", times.ran, times.committed},
                  {"answered", times.committed, times.answered}};
    std::string text;
    for (const auto& stage : stages) {
      if (stage.from == 0 || stage.to == 0 || stage.to < stage.from) continue;
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", stage.name,
                          DurationText(stage.to - stage.from));
    }
    if (!text.empty()) fmt::print("{}\n", text);
  }

  void PrintHead(const TraceAnswer& answer, const TraceTask* task) const {
    fmt::print("\n{}\n", options_.paint(Colour::kBold,
                                        fmt::format("sequence {} {}", HandleText(answer.sequence),
                                                    SafeText(book_.RequestOf(answer.sequence)))));
    fmt::print("answer: {}, {} kept, {} of them accepted", NameOf(answer.status), answer.num_kept,
               answer.num_accepted);
    if (answer.refusal != Refusal::kNone) fmt::print("; {}", RefusalText(answer.refusal));
    if (answer.finish_reason != FinishReason::kNone) {
      fmt::print("; finished by {}", NameOf(answer.finish_reason));
    }
    fmt::print("\n");
    if (task == nullptr) return;
    fmt::print("method {}, seed {}, round base {}, positions from {}", MethodText(task->method),
               task->seed, task->round_base, task->first_position);
    if (task->target_scale > 0) {
      fmt::print(", temperature {:.4g}", 1.4426950408889634 / double{task->target_scale});
    }
    if (task->rng == Rng::kSglang) fmt::print(", rng sglang");
    PrintFilters(task->target_filters);
    const Penalties& penalties = task->penalties;
    if (task->min_tokens > 0) fmt::print(", min_tokens {}", task->min_tokens);
    if (penalties.repetition != 1) fmt::print(", repetition penalty {:.6g}", penalties.repetition);
    if (penalties.frequency != 0) fmt::print(", frequency penalty {:.6g}", penalties.frequency);
    if (penalties.presence != 0) fmt::print(", presence penalty {:.6g}", penalties.presence);
    fmt::print("\nconfirmed: {}\n", text_.ShowAll(task->confirmed));
  }

  static void PrintFilters(const Filters& filters) {
    if (filters.top_k > 0) fmt::print(", top_k {}", filters.top_k);
    if (filters.top_p < kTopPOff) fmt::print(", top_p {:.6g}", CoinToDouble(filters.top_p));
    if (filters.min_p > -kInfinity) fmt::print(", min_p {:.6g}", std::exp2(double{filters.min_p}));
  }

  absl::Status PrintTask(const TraceTask& task, const RoundRebuilder& rebuilder, size_t index) {
    const std::optional<size_t> place_in_batch = rebuilder.InBatch(index);
    const bool is_rebuilt = place_in_batch.has_value();
    const size_t in_batch = place_in_batch.value_or(0);
    const bool use_replay = is_rebuilt && task.decisions.empty();
    if (DraftTree::IsTree(task)) {
      if (absl::Status status = PrintTree(task, is_rebuilt ? &rebuilder : nullptr, in_batch);
          !status.ok()) {
        return status;
      }
    }
    const std::vector<PlaceView> views =
        ViewWalk(*reader_.info(), task,
                 use_replay ? rebuilder.decisions(in_batch) : std::span(task.decisions));
    std::vector<std::string> notes(views.size());
    for (size_t i = 0; i < views.size(); ++i) {
      absl::StatusOr<std::string> note =
          ZeroNote(views[i], is_rebuilt ? &rebuilder : nullptr, in_batch);
      if (!note.ok()) return note.status();
      notes[i] = *std::move(note);
    }
    if (use_replay) fmt::print("The backend keeps no decisions; these are of a replay.\n");
    PrintPlaces(task, views, notes);
    if (!is_rebuilt) {
      if (options_.top > 0) {
        fmt::print("{}\n",
                   options_.paint(Colour::kDim,
                                  fmt::format("no candidates: {}",
                                              std::string(rebuilder.WhyNot(index).message()))));
      }
      return absl::OkStatus();
    }
    for (const PlaceView& view : views) {
      if (view.verdict == ShownVerdict::kNotJudged || options_.top == 0) continue;
      if (absl::Status status = PrintCandidates(view, rebuilder, in_batch); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

  // The tree with the walk through it: each node, its numbers and what became of it.
  absl::Status PrintTree(const TraceTask& task, const RoundRebuilder* rebuilder, size_t i) {
    const int32_t vocab_size = reader_.info()->vocab_size;
    const auto nodes = ViewTree(task, vocab_size, &place_rows_, rebuilder, i);
    if (!nodes.ok()) return nodes.status();
    PrintTreeTable(task, *nodes, text_, options_.paint);
    fmt::print("\n");
    return absl::OkStatus();
  }

  // The step that made p 0; empty: it is not, or nothing was rejected. What step 1 forbids is named
  // also where the method has no p.
  absl::StatusOr<std::string> ZeroNote(const PlaceView& view, const RoundRebuilder* rebuilder,
                                       size_t i) {
    if (view.verdict != ShownVerdict::kRejected || !view.has_draft) return std::string();
    if (rebuilder != nullptr) {
      if (absl::Status status = place_rows_.Read(*rebuilder, i, view.place); !status.ok()) {
        return status;
      }
      if (place_rows_.has_p() && place_rows_.At(view.draft).is_forbidden)
        return ForbiddenNote(view);
    }
    const absl::StatusOr<ZeroCause> cause = CauseOfZero(view, &place_rows_, rebuilder, i);
    if (!cause.ok()) return cause.status();
    return TextOf(*cause);
  }

  // REQUIRES: the rows of the place were read.
  std::string ForbiddenNote(const PlaceView& view) const {
    const size_t place = view.place;
    const uint64_t state =
        place < view.task->places.size() ? view.task->places[place].grammar_state : 0;
    return fmt::format(
        "{} forbids {}: {} of {} ids are allowed here",
        state != 0 ? fmt::format("the grammar, in state {:#x},", state) : "a mask or a list",
        text_.Show(view.draft), place_rows_.num_allowed(), reader_.info()->vocab_size);
  }

  void PrintPlaces(const TraceTask& task, const std::vector<PlaceView>& views,
                   const std::vector<std::string>& notes) const {
    const bool is_block = task.method == VerifyMethod::kBlock;
    std::vector<TextTable::Column> columns = {
        {"place"}, {"draft", Align::kLeft}, {"p"}, {"q"}, {"p/q"}, {"u"}};
    if (is_block) columns.insert(columns.end(), {{"P"}, {"h"}});
    columns.insert(columns.end(), {{"verdict", Align::kLeft}, {"token", Align::kLeft}});
    {
      TextTable table(columns, options_.paint);
      for (const PlaceView& view : views) {
        const PlaceDecision& d = view.decision;
        std::vector<TextTable::Cell> cells = {
            fmt::format("{}", view.place), text_.Show(view.draft),  Number(view.p), Number(view.q),
            Number(view.Ratio()),          Number(view.accept_coin)};
        if (is_block) {
          cells.emplace_back(view.q ? fmt::format("{:.6f}", d.prefix) : "-");
          cells.emplace_back(d.bound >= 0 ? fmt::format("{:.6f}", d.bound) : "-");
        }
        cells.emplace_back(std::string(NameOf(view.verdict)), ColourOf(view.verdict));
        cells.emplace_back(text_.Show(view.token));
        table.Add(std::move(cells));
      }
    }
    for (const PlaceView& view : views) {
      if (view.verdict == ShownVerdict::kNotJudged) continue;
      fmt::print("  place {}: {}\n", view.place, Why(view));
      const std::string& note = notes[&view - views.data()];
      if (!note.empty()) fmt::print("           {}\n", note);
      PrintDraw(view);
    }
    const auto num_left = std::count_if(views.begin(), views.end(), [](const PlaceView& view) {
      return view.verdict == ShownVerdict::kNotJudged;
    });
    if (num_left > 0) {
      fmt::print("  {} places were not judged: the draft ended before them\n", num_left);
    }
  }

  void PrintDraw(const PlaceView& view) const {
    const PlaceDecision& d = view.decision;
    if (!view.draw_coin || !d.judged) return;
    const bool is_residual = d.residual_mass >= 0;
    fmt::print("           {} drawn from {}: the {} coin {:.6f} is in [{:.6f}, {:.6f})",
               text_.Show(d.token), DrawnFrom(view), NameOf(d.draw_purpose), *view.draw_coin,
               CoinToDouble(d.draw_interval.low), CoinToDouble(d.draw_interval.high));
    if (is_residual) fmt::print("; the residual's mass is {:.6f}", d.residual_mass);
    if (d.residual_mass == 0) fmt::print(" (empty, so p was sampled)");
    fmt::print("\n");
  }

  absl::Status PrintCandidates(const PlaceView& view, const RoundRebuilder& rebuilder, size_t i) {
    if (absl::Status status = place_rows_.Read(rebuilder, i, view.place); !status.ok()) {
      return status;
    }
    if (place_rows_.has_p()) PrintDistribution(view);
    PrintForbidden(view.place);
    return absl::OkStatus();
  }

  void PrintDistribution(const PlaceView& view) {
    fmt::print("\ncandidates at place {}{}\n", view.place,
               place_rows_.is_masked()
                   ? fmt::format(" ({} of {} ids allowed)", place_rows_.num_allowed(),
                                 reader_.info()->vocab_size)
                   : "");
    TextTable table({{"id", Align::kLeft}, {"p"}, {"q"}, {"residual"}, {"", Align::kLeft}},
                    options_.paint);
    const bool has_residual = place_rows_.residual_mass() > 0;
    for (const Candidate& c : place_rows_.Best(options_.top, {view.draft, view.token})) {
      std::string notes;
      const auto note = [&](bool is_so, std::string_view word) {
        if (is_so) notes += (notes.empty() ? "" : ", ") + std::string(word);
      };
      note(view.has_draft && c.id == view.draft, "draft");
      note(c.id == view.token, "emitted");
      note(c.is_forbidden, "forbidden by a mask");
      table.Add(
          {text_.Show(c.id),
           fmt::format("{:.6f}", c.p),
           place_rows_.has_q() || c.q > 0 ? fmt::format("{:.6f}", c.q) : "-",
           has_residual ? fmt::format("{:.6f}", c.residual / place_rows_.residual_mass()) : "-",
           {notes, c.is_forbidden ? Colour::kRed : Colour::kNone}});
    }
    table.Flush();
  }

  // What the grammar, a mask or a list stopped.
  void PrintForbidden(int32_t place) const {
    const std::vector<Candidate> best = place_rows_.BestForbidden(options_.top);
    if (best.empty()) return;
    fmt::print("\nforbidden at place {}\n", place);
    TextTable table({{"id", Align::kLeft}, {"p without the mask"}}, options_.paint);
    for (const Candidate& c : best) {
      table.Add({text_.Show(c.id), {fmt::format("{:.6f}", c.free_p), Colour::kRed}});
    }
  }

  const CommandOptions& options_;
  TokenText text_;
  TraceReader reader_;
  SequenceBook book_;
  ReplayBackend backend_;
  PlaceRows place_rows_;
};

}  // namespace

absl::StatusOr<int> RunShow(const CommandOptions& options) {
  absl::StatusOr<TokenText> text = TokenText::Load(options.tokenizer);
  if (!text.ok()) return text.status();
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeNamedBackend("cpu");
  if (!backend.ok()) return backend.status();
  return Show(options, *std::move(text), *std::move(backend)).Run(*options.round);
}

}  // namespace specd::replay
