#include "tools/replay/rerun_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tools/replay/draft_tree.h"
#include "tools/replay/interval.h"
#include "tools/replay/named_backend.h"
#include "tools/replay/names.h"
#include "tools/replay/reason_counts.h"
#include "tools/replay/replay_backend.h"
#include "tools/replay/round_rebuilder.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/what_if.h"
#include "tools/terminal/text_table.h"

namespace specd::replay {
namespace {

// What each sequence-round accepted under one setting, averaged over seeds.
struct Tally {
  std::vector<double> lengths;
  std::vector<std::vector<double>> by_place;  // one for each sequence-round that has the place
  void Add(size_t place, double share) {
    if (place >= by_place.size()) by_place.resize(place + 1);
    by_place[place].push_back(share);
  }
};

class Rerun {
 public:
  Rerun(const CommandOptions& options, const WhatIf& what, ReplayBackend backend)
      : options_(options), what_(what), backend_(std::move(backend)), reader_(options.paths) {}

  absl::StatusOr<int> Run() {
    TraceItem item;
    for (;;) {
      const absl::StatusOr<bool> more = reader_.Next(&item);
      if (!more.ok()) return more.status();
      if (!*more) break;
      book_.Take(item);
      const auto* const round = std::get_if<TraceRound>(&item.record);
      if (round == nullptr || !options_.filter.TakesRound(round->number)) continue;
      if (round->level != TraceLevel::kRows) {
        for (const TraceTask& task : round->tasks) {
          if (IsAsked(*round, task)) left_out_.Add("the round has no rows");
        }
        continue;
      }
      if (absl::Status status = Take(*round); !status.ok()) return status;
    }
    PrintWarnings(reader_.warnings());
    if (groups_.empty() && left_out_.empty()) return NothingPasses(options_);
    Print();
    if (!groups_.empty()) return kExitOk;
    return absl::NotFoundError("no draft with all its rows: record with level=rows,places=all");
  }

 private:
  absl::Status Take(const TraceRound& round) {
    const absl::StatusOr<const RowFileReader*> rows = reader_.Rows();
    if (!rows.ok()) return rows.status();
    const int32_t vocab_size = reader_.info()->vocab_size;
    RoundRebuilder rebuilder(vocab_size);
    rebuilder.Rebuild(round, *rows);
    if (!rebuilder.damage().ok()) return rebuilder.damage();
    for (size_t i = 0; i < round.tasks.size(); ++i) {
      const absl::Status& why_not = rebuilder.WhyNot(i);
      if (why_not.ok() || !IsAsked(round, round.tasks[i])) continue;
      left_out_.Add(std::string(why_not.message()));
    }
    if (rebuilder.tasks().empty()) return absl::OkStatus();
    const size_t count = rebuilder.tasks().size();
    std::vector<bool> is_used(count);
    for (size_t i = 0; i < count; ++i) is_used[i] = IsUsed(round, rebuilder, i, vocab_size);
    if (std::find(is_used.begin(), is_used.end(), true) == is_used.end()) return absl::OkStatus();
    const std::vector<Task> recorded = Tasks(&rebuilder);
    std::vector<Task> changed = recorded;
    for (size_t i = 0; i < count; ++i) {
      // A rebuilt task that is not used runs unchanged, and its answer is ignored.
      if (is_used[i]) what_.Apply(vocab_size, rebuilder.HasDraftRows(i), &changed[i]);
    }
    Measured base{std::vector<double>(count), std::vector<std::vector<double>>(count)};
    Measured other = base;
    for (int32_t seed = 0; seed < options_.num_seeds; ++seed) {
      if (absl::Status s = RunOnce(&rebuilder, recorded, seed, &base); !s.ok()) return s;
      if (absl::Status s = RunOnce(&rebuilder, changed, seed, &other); !s.ok()) return s;
    }
    for (size_t i = 0; i < count; ++i) {
      if (is_used[i]) Count(round, round.tasks[rebuilder.tasks()[i]], base, other, i);
    }
    return absl::OkStatus();
  }

  // Sums over seeds, for each task of a round.
  struct Measured {
    std::vector<double> lengths;
    std::vector<std::vector<double>> by_place;
  };

  static std::vector<Task> Tasks(RoundRebuilder* rebuilder) {
    std::vector<Task> tasks;
    for (size_t i = 0; i < rebuilder->tasks().size(); ++i) tasks.push_back(rebuilder->task(i));
    return tasks;
  }

  // Whether it has a draft, of a sequence that the filter takes.
  bool IsAsked(const TraceRound& round, const TraceTask& task) const {
    const TraceAnswer* const answer = AnswerOf(round, task);
    return answer != nullptr && book_.NumDrawnOf(task) > 0 &&
           options_.filter.TakesSequence(answer->sequence, book_.RequestOf(answer->sequence));
  }

  bool IsUsed(const TraceRound& round, const RoundRebuilder& rebuilder, size_t i,
              int32_t vocab_size) {
    const TraceTask& record = round.tasks[rebuilder.tasks()[i]];
    if (!IsAsked(round, record)) return false;
    if (record.outcome.status != OutcomeStatus::kOk) {
      left_out_.Add("a row of the draft is bad");
      return false;
    }
    // A setting that accepts more would look at rows that are not there.
    if (!rebuilder.HasTargetRows(i)) {
      left_out_.Add("rows after the end of the draft were not recorded (places=all records them)");
      return false;
    }
    Task task = rebuilder.batch().tasks[i];
    const std::string why = what_.Apply(vocab_size, rebuilder.HasDraftRows(i), &task);
    if (!why.empty()) left_out_.Add(why);
    return why.empty();
  }

  absl::Status RunOnce(RoundRebuilder* rebuilder, const std::vector<Task>& tasks, int32_t seed,
                       Measured* sums) {
    for (size_t i = 0; i < tasks.size(); ++i) {
      rebuilder->task(i) = tasks[i];
      // Other coins than the recorded ones, and the same for both settings.
      rebuilder->task(i).seed = tasks[i].seed + 0x9e3779b97f4a7c15 * uint64_t(seed + 1);
      rebuilder->task(i).num_coins = 0;
    }
    if (absl::Status status = backend_.Run(rebuilder); !status.ok()) return status;
    for (size_t i = 0; i < tasks.size(); ++i) {
      const int32_t accepted = rebuilder->outcome(i).num_accepted;
      sums->lengths[i] += accepted;
      sums->by_place[i].resize(tasks[i].draft.num_nodes, 0.0);
      for (int32_t place = 0; place < accepted; ++place) {
        sums->by_place[i][place] += 1;
      }
    }
    return absl::OkStatus();
  }

  void Count(const TraceRound& round, const TraceTask& record, const Measured& base,
             const Measured& other, size_t i) {
    const double seeds = options_.num_seeds;
    const DraftTree tree(record, static_cast<int32_t>(reader_.info()->vocab_size));
    // In a tree the depth of a place counts.
    const uint32_t drawn =
        DraftTree::IsTree(record) ? static_cast<uint32_t>(tree.Depth()) : book_.NumDrawnOf(record);
    groups_.push_back(static_cast<uint32_t>(book_.IndexOf(AnswerOf(round, record)->sequence)));
    recorded_.lengths.push_back(record.outcome.num_accepted);
    base_.lengths.push_back(base.lengths[i] / seeds);
    other_.lengths.push_back(other.lengths[i] / seeds);
    if (drawn > groups_by_place_.size()) groups_by_place_.resize(drawn);
    for (uint32_t place = 0; place < drawn; ++place) {
      groups_by_place_[place].push_back(groups_.back());
      const bool was_accepted = static_cast<int32_t>(place) < record.outcome.num_accepted;
      recorded_.Add(place, was_accepted ? 1 : 0);
      base_.Add(place, base.by_place[i][place] / seeds);
      other_.Add(place, other.by_place[i][place] / seeds);
    }
  }

  static std::string MeanText(const std::vector<double>& values,
                              const std::vector<uint32_t>& groups) {
    const Mean mean = ClusteredMean(values, groups);
    if (!std::isfinite(mean.half_width)) return fmt::format("{:.4f}", mean.mean);
    return fmt::format("{:.4f} +- {:.4f}", mean.mean, mean.half_width);
  }

  void Print() const {
    for (const auto& reason : left_out_) {
      fmt::print("drafts left out: {} ({})\n", reason.second.count, SafeText(TextOf(reason)));
    }
    if (groups_.empty()) return;
    std::vector<uint32_t> distinct = groups_;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    fmt::print("{} sequence-rounds of {} sequences with recorded drafts; {} seeds\n\n",
               groups_.size(), distinct.size(), options_.num_seeds);
    {
      TextTable table({{"accepted at place", TextTable::Align::kLeft},
                       {"drafted"},
                       {"as it happened"},
                       {"recorded settings"},
                       {what_text_}},
                      options_.paint);
      for (size_t place = 0; place < groups_by_place_.size(); ++place) {
        const std::vector<uint32_t>& groups = groups_by_place_[place];
        table.Add({fmt::format("{}", place), fmt::format("{}", groups.size()),
                   MeanText(recorded_.by_place[place], groups),
                   MeanText(base_.by_place[place], groups),
                   MeanText(other_.by_place[place], groups)});
      }
      table.Add({"mean length", "", MeanText(recorded_.lengths, groups_),
                 MeanText(base_.lengths, groups_), MeanText(other_.lengths, groups_)});
      std::vector<double> gains;
      for (size_t i = 0; i < groups_.size(); ++i) {
        gains.push_back(other_.lengths[i] - base_.lengths[i]);
      }
      table.Add({"difference", "", "", "", MeanText(gains, groups_)});
    }
    fmt::print(
        "\nThe intervals are of 95 %, over sequences as independent units (Student's t). Each "
        "draft "
        "is\ndecided with {} other seeds, the same for both settings. The drafts and the rounds "
        "stay as\nrecorded: a run with other settings would have met other rows.\n",
        options_.num_seeds);
    if (distinct.size() < 10) {
      fmt::print("With {} sequences the intervals are wide or say little; record more sequences.\n",
                 distinct.size());
    }
  }

  const CommandOptions& options_;
  const WhatIf& what_;
  const std::string what_text_ = what_.Describe();
  ReplayBackend backend_;
  TraceReader reader_;
  SequenceBook book_;
  ReasonCounts left_out_;
  std::vector<uint32_t> groups_;  // the sequence of each sequence-round
  std::vector<std::vector<uint32_t>> groups_by_place_;
  Tally recorded_;
  Tally base_;
  Tally other_;
};

}  // namespace

absl::StatusOr<int> RunRerun(const CommandOptions& options) {
  const absl::StatusOr<WhatIf> what = WhatIf::Parse(options.set, options.method);
  if (!what.ok()) return what.status();
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeNamedBackend(options.backend);
  if (!backend.ok()) return backend.status();
  return Rerun(options, *what, ReplayBackend(*std::move(backend), options.threads)).Run();
}

}  // namespace specd::replay
