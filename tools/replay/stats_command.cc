#include "tools/replay/stats_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/replay/bar_chart.h"
#include "tools/replay/draft_tree.h"
#include "tools/replay/interval.h"
#include "tools/replay/json_text.h"
#include "tools/replay/names.h"
#include "tools/replay/output_file.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/task_rules.h"
#include "tools/replay/time_bins.h"
#include "tools/replay/token_text.h"
#include "tools/replay/trace_reader.h"
#include "tools/terminal/text_table.h"

namespace specd::replay {
namespace {

using Align = TextTable::Align;

// Draft tokens of one group. A token is reached if all tokens before it were accepted.
struct Group {
  std::string label;
  uint64_t drafted = 0;
  uint64_t reached = 0;
  uint64_t accepted = 0;

  double share() const { return drafted == 0 ? 0 : double(accepted) / double(drafted); }
  double share_of_reached() const { return reached == 0 ? 0 : double(accepted) / double(reached); }
  void Add(const Group& other) {
    drafted += other.drafted;
    reached += other.reached;
    accepted += other.accepted;
  }
};

class Stats {
 public:
  Stats(const CommandOptions& options, TokenText text)
      : options_(options),
        text_(std::move(text)),
        reader_(options.paths),
        book_(options.by == "sequence" ? SequenceBook::Keep::kAll : SequenceBook::Keep::kOpen) {}

  absl::StatusOr<int> Run() {
    TraceItem item;
    for (;;) {
      const absl::StatusOr<bool> more = reader_.Next(&item);
      if (!more.ok()) return more.status();
      if (!*more) break;
      book_.Take(item);
      const auto* const round = std::get_if<TraceRound>(&item.record);
      if (round == nullptr || !options_.filter.TakesRound(round->number)) continue;
      for (const TraceTask& task : round->tasks) Take(*round, task);
    }
    PrintWarnings(reader_.warnings());
    if (num_rounds_ == 0) return NothingPasses(options_);
    absl::Status status = Print();
    if (!status.ok()) return status;
    return kExitOk;
  }

 private:
  void Take(const TraceRound& round, const TraceTask& task) {
    const TraceAnswer* const answer = AnswerOf(round, task);
    if (answer == nullptr) return;
    const std::string_view request = book_.RequestOf(answer->sequence);
    if (!options_.filter.TakesSequence(answer->sequence, request)) return;
    if (options_.status && answer->status != *options_.status) return;
    const uint32_t drawn = book_.NumDrawnOf(task);
    const uint32_t accepted = std::max(task.outcome.num_accepted, 0);
    ++num_rounds_;
    if (drawn == 0 || !HasOutcome(round, task)) return;
    ++num_with_draft_;
    num_accepted_ += std::min(accepted, drawn);
    if (DraftTree::IsTree(task)) return TakeTree(round, task, *answer);
    const uint32_t reached = NumReached(task, drawn);
    for (uint32_t i = 0; i < drawn; ++i) {
      Group* const group = GroupOf(round, task, *answer, i, task.tokens[i]);
      ++group->drafted;
      if (i < reached) ++group->reached;
      if (i < accepted) ++group->accepted;
    }
  }

  // The place of a node is its depth.
  void TakeTree(const TraceRound& round, const TraceTask& task, const TraceAnswer& answer) {
    const int32_t vocab_size = reader_.info()->vocab_size;
    if (!CheckTask(round, task, vocab_size).ok()) return;
    const DraftTree tree(task, vocab_size);
    const std::vector<NodeFate> fates = tree.Fates();
    for (int32_t node = 0; node < tree.num_nodes(); ++node) {
      const NodeFate fate = fates[node];
      if (fate == NodeFate::kOutside) continue;
      const uint32_t depth = tree.DepthOf(tree.PlaceOf(node));
      Group* const group = GroupOf(round, task, answer, depth, tree.TokenOf(node));
      ++group->drafted;
      if (fate != NodeFate::kNotJudged) ++group->reached;
      if (fate == NodeFate::kAccepted) ++group->accepted;
    }
  }

  Group* At(size_t index) {
    if (index >= groups_.size()) groups_.resize(index + 1);
    return &groups_[index];
  }

  Group* GroupOf(const TraceRound& round, const TraceTask& task, const TraceAnswer& answer,
                 uint32_t place, TokenId token) {
    if (options_.by == "time") return time_.At(round.times.taken);
    if (options_.by == "sequence") return At(book_.IndexOf(answer.sequence));
    if (options_.by == "method") return At(static_cast<size_t>(task.method));
    if (options_.by == "class") return At(static_cast<size_t>(text_.ClassOf(token)));
    return At(place);
  }

  std::string LabelOf(size_t index) const {
    if (options_.by == "sequence") {
      const TraceOpening& opening = book_.entries()[index].opening;
      return opening.request_id.empty() ? HandleText(opening.sequence) : opening.request_id;
    }
    if (options_.by == "method") return std::string(NameOf(static_cast<VerifyMethod>(index)));
    if (options_.by == "class") return std::string(NameOf(static_cast<TokenClass>(index)));
    return fmt::format("{}", index);
  }

  std::vector<Group> Groups() const {
    std::vector<Group> groups;
    if (options_.by == "time") {
      groups = time_.groups();
      for (size_t i = 0; i < groups.size(); ++i) {
        groups[i].label = fmt::format("{:.6g} s", time_.StartSeconds(i));
      }
    } else {
      groups = groups_;
      for (size_t i = 0; i < groups.size(); ++i) groups[i].label = LabelOf(i);
    }
    std::erase_if(groups, [](const Group& group) { return group.drafted == 0; });
    return groups;
  }

  // As the method judged: the finish rules may drop accepted tokens.
  double MeanAccepted() const {
    return num_with_draft_ == 0 ? 0 : double(num_accepted_) / double(num_with_draft_);
  }

  absl::Status Print() const {
    const std::vector<Group> groups = Groups();
    if (options_.format == "json") return WriteText(options_.output, Json(groups));
    if (options_.format == "svg") return WriteText(options_.output, Svg(groups));
    if (!options_.output.empty()) {
      return absl::InvalidArgumentError(
          "o is for --format=json and --format=svg; a table goes to "
          "stdout");
    }
    {
      TextTable table({{options_.by, Align::kLeft},
                       {"drafted"},
                       {"reached"},
                       {"accepted (judged)"},
                       {"rate"},
                       {"95 % interval"},
                       {"rate if reached"}},
                      options_.paint);
      for (const Group& group : groups) {
        const Interval interval = Wilson(group.accepted, group.drafted);
        table.Add({group.label, fmt::format("{}", group.drafted), fmt::format("{}", group.reached),
                   fmt::format("{}", group.accepted), fmt::format("{:.4f}", group.share()),
                   fmt::format("{:.4f} .. {:.4f}", interval.low, interval.high),
                   fmt::format("{:.4f}", group.share_of_reached())});
      }
    }
    fmt::print("\n{} sequence-rounds, {} with a draft; {:.4f} accepted per draft\n", num_rounds_,
               num_with_draft_, MeanAccepted());
    return absl::OkStatus();
  }

  std::string Json(const std::vector<Group>& groups) const {
    std::string text = fmt::format(
        "{{\"by\": {}, \"sequence_rounds\": {}, \"with_draft\": {}, \"accepted_per_draft\": {},\n"
        " \"groups\": [",
        JsonString(options_.by), num_rounds_, num_with_draft_, JsonNumber(MeanAccepted()));
    for (size_t i = 0; i < groups.size(); ++i) {
      const Group& group = groups[i];
      const Interval interval = Wilson(group.accepted, group.drafted);
      text += fmt::format(
          "{}\n  {{\"label\": {}, \"drafted\": {}, \"reached\": {}, \"accepted\": {}, \"rate\": "
          "{}, "
          "\"low\": {}, \"high\": {}}}",
          i == 0 ? "" : ",", JsonString(group.label), group.drafted, group.reached, group.accepted,
          JsonNumber(group.share()), JsonNumber(interval.low), JsonNumber(interval.high));
    }
    return text + "]}\n";
  }

  std::string Svg(const std::vector<Group>& groups) const {
    std::vector<Bar> bars;
    for (const Group& group : groups) {
      bars.push_back({group.label, group.share(), Wilson(group.accepted, group.drafted),
                      fmt::format("{:.3f} of {}", group.share(), group.drafted)});
    }
    return BarChart(fmt::format("Accepted draft tokens by {}", options_.by), bars);
  }

  const CommandOptions& options_;
  TokenText text_;
  TraceReader reader_;
  SequenceBook book_;
  std::vector<Group> groups_;
  TimeBins<Group> time_{32};
  uint64_t num_rounds_ = 0;
  uint64_t num_with_draft_ = 0;
  uint64_t num_accepted_ = 0;
};

}  // namespace

absl::StatusOr<int> RunStats(const CommandOptions& given) {
  CommandOptions options = given;
  if (options.format.empty()) options.format = "table";
  if (options.format == "png") {
    return absl::InvalidArgumentError(
        "format = png is not written; give --format=svg, which a browser shows and rsvg-convert "
        "or Inkscape turn into PNG");
  }
  if (options.format != "table" && options.format != "json" && options.format != "svg") {
    return absl::InvalidArgumentError(
        fmt::format("format = {} is none of table, json and svg", options.format));
  }
  const std::string_view known[] = {"position", "sequence", "time", "method", "class"};
  if (std::find(std::begin(known), std::end(known), options.by) == std::end(known)) {
    return absl::InvalidArgumentError(
        fmt::format("by = {} is none of position, sequence, time, method and class", options.by));
  }
  if (options.by == "class" && options.tokenizer.empty()) {
    return absl::InvalidArgumentError("by = class needs --tokenizer=FILE, the model's tokenizer");
  }
  absl::StatusOr<TokenText> text = TokenText::Load(options.tokenizer);
  if (!text.ok()) return text.status();
  return Stats(options, *std::move(text)).Run();
}

}  // namespace specd::replay
