#include "tools/replay/report_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "speculative/params/param_table.h"
#include "tools/replay/json_text.h"
#include "tools/replay/names.h"
#include "tools/replay/opening_comparison.h"
#include "tools/replay/round_rebuilder.h"
#include "tools/replay/task_rules.h"
#include "tools/replay/tree_view.h"

namespace specd::replay {
namespace {

constexpr int kAccepted = 0;
constexpr int kReplacement = 1;
constexpr int kBonus = 2;
constexpr int kPlain = 3;
constexpr int kForced = 4;

std::string Number(uint64_t value) { return fmt::format("{}", value); }

// The kind of a kept token of DATA.md.
int KindOf(const TraceTask& task, const PlaceView& view) {
  const size_t place = view.place;
  if (view.depth < task.outcome.num_accepted) return kAccepted;
  if (place < task.places.size() && task.places[place].forced != kNoToken) return kForced;
  if (view.has_draft) return kReplacement;
  return view.is_leaf || (view.num_drawn > 0 && place == task.tokens.size()) ? kBonus : kPlain;
}

enum Fate : int { kFateRejected, kFateNotJudged, kFateDropped, kFateBadRow, kFateWithBlock };

// Of a token of a chain that was not kept.
int FateOf(const TraceTask& task, const PlaceView& view) {
  if (view.depth < task.outcome.num_accepted) return kFateDropped;
  if (uint32_t(view.place) < NumReached(task, view.num_drawn)) return kFateRejected;
  const ShownVerdict verdict = view.verdict;
  if (verdict == ShownVerdict::kBadTarget || verdict == ShownVerdict::kBadDraft) return kFateBadRow;
  const bool is_later = view.depth > task.outcome.num_accepted;
  return is_later && verdict == ShownVerdict::kRejected ? kFateWithBlock : kFateNotJudged;
}

// Of a node that was not kept.
int FateOf(NodeFate fate) {
  if (fate == NodeFate::kAccepted) return kFateDropped;
  return fate == NodeFate::kNotJudged ? kFateNotJudged : kFateRejected;
}

// Draft tokens that the method accepted. The finish rules may drop some of them.
uint32_t JudgedAccepted(const TraceRound& round, const TraceTask& task) {
  return HasOutcome(round, task) ? uint32_t(std::max(task.outcome.num_accepted, 0)) : 0;
}

}  // namespace

std::string ReportData::IdJson(TokenId id) const {
  return info_->anonymised || id == kNoToken ? "null" : fmt::format("{}", id);
}

std::string ReportData::IdText(TokenId id) { return Text(text_.Bytes(id)); }

absl::Status ReportData::Take(const TraceItem& item, const RowFileReader* rows, int64_t start_ns) {
  start_ns_ = start_ns;
  if (const auto* info = std::get_if<TraceInfo>(&item.record)) {
    if (!info_) info_ = *info;
  }
  if (const auto* drops = std::get_if<TraceDrops>(&item.record)) {
    dropped_[item.file] = drops->rounds;  // counts begin anew in each file
  }
  book_.Take(item);
  const auto* const round = std::get_if<TraceRound>(&item.record);
  if (round == nullptr) return absl::OkStatus();
  Count(*round);
  if (!options_.filter.TakesRound(round->number) || full_at_) return absl::OkStatus();
  if (tokens_.count() >= options_.tokens_max) {
    full_at_ = round->number;
    return absl::OkStatus();
  }
  return TakeRound(*round, rows);
}

void ReportData::Count(const TraceRound& round) {
  ++num_rounds_;
  level_ = std::max(level_, round.level);
  for (const TraceAnswer& answer : round.answers) {
    num_kept_ += answer.num_kept;
  }
  for (const TraceTask& task : round.tasks) {
    if (!HasOutcome(round, task)) continue;
    num_drafted_ += book_.NumDrawnOf(task);
    num_accepted_ += JudgedAccepted(round, task);
  }
}

absl::Status ReportData::TakeRound(const TraceRound& round, const RowFileReader* rows) {
  const int32_t vocab_size = info_->vocab_size;
  RoundRebuilder rebuilder(vocab_size);
  rebuilder.Rebuild(round, rows);
  if (!rebuilder.damage().ok()) return rebuilder.damage();
  if (absl::Status status = backend_->Run(&rebuilder); !status.ok()) return status;
  std::vector<std::optional<size_t>> task_of(round.answers.size());
  for (size_t i = 0; i < round.tasks.size(); ++i) {
    const TraceTask& task = round.tasks[i];
    // Not consistent, which `verify` names; or its draft tokens lay on a device.
    if (!CheckTask(round, task, vocab_size).ok()) continue;
    task_of[task.answer] = i;
  }
  for (size_t i = 0; i < round.answers.size(); ++i) {
    const TraceAnswer& answer = round.answers[i];
    if (NamesNoSequence(answer)) continue;
    if (!options_.filter.TakesSequence(answer.sequence, book_.RequestOf(answer.sequence))) continue;
    const TraceTask* const task = task_of[i] ? &round.tasks[*task_of[i]] : nullptr;
    AddStep(round, answer, task);
    if (task == nullptr) continue;
    absl::Status status =
        AddPlaces(round, answer, *task, rebuilder, rebuilder.InBatch(*task_of[i]));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void ReportData::AddStep(const TraceRound& round, const TraceAnswer& answer,
                         const TraceTask* task) {
  const TraceTimes& times = round.times;
  const bool is_timed = times.taken != 0 && times.answered >= times.taken;
  // A round that was called off has judged no draft.
  const bool is_judged = task != nullptr && HasOutcome(round, *task);
  const uint32_t drafted = is_judged ? book_.NumDrawnOf(*task) : 0;
  const bool is_chain = task != nullptr && !DraftTree::IsTree(*task);
  const uint32_t base = task != nullptr ? task->round_base : answer.total_kept - answer.num_kept;
  steps_.Add(
      {Number(book_.IndexOf(answer.sequence)), Number(round.number),
       JsonNumber(double(times.taken - start_ns_) / 1e6),
       is_timed ? JsonNumber(double(times.answered - times.taken) / 1e3) : "null", Number(base),
       task == nullptr ? "null" : Text(MethodText(task->method)), Number(drafted),
       is_chain ? Number(NumReached(*task, drafted)) : "null", Number(answer.num_accepted),
       Number(task == nullptr ? 0 : JudgedAccepted(round, *task)), Number(answer.num_kept),
       Text(NameOf(answer.status)),
       answer.finish_reason == FinishReason::kNone ? "null" : Text(NameOf(answer.finish_reason))});
}

absl::Status ReportData::AddPlaces(const TraceRound& round, const TraceAnswer& answer,
                                   const TraceTask& task, const RoundRebuilder& rebuilder,
                                   std::optional<size_t> in_batch) {
  if (!HasOutcome(round, task)) return absl::OkStatus();
  const std::vector<PlaceView> views = ViewWalk(
      *info_, task,
      DecisionsOf(task, in_batch ? rebuilder.decisions(*in_batch) : std::span<PlaceDecision>()));
  std::vector<std::string> decisions;
  for (const PlaceView& view : views) {
    if (view.verdict == ShownVerdict::kNotJudged) {
      decisions.emplace_back("null");
      continue;
    }
    decisions.push_back(Number(decisions_.count()));
    if (absl::Status status = AddRows(round, view, rebuilder, in_batch); !status.ok()) {
      return status;
    }
    AddDecision(view);
  }
  const size_t num_kept = std::min<size_t>(answer.num_kept, task.confirmed.size());
  AddTokens(task, num_kept, decisions, views);
  if (DraftTree::IsTree(task)) return AddTree(task, num_kept, decisions, rebuilder, in_batch);
  AddRejected(task, num_kept, decisions, views);
  return absl::OkStatus();
}

void ReportData::AddTokens(const TraceTask& task, size_t num_kept,
                           const std::vector<std::string>& decisions,
                           const std::vector<PlaceView>& views) {
  const std::string step = Number(steps_.count() - 1);
  for (size_t i = 0; i < num_kept; ++i) {
    const TokenId id = task.confirmed[i];
    tokens_.Add(
        {step, IdJson(id), IdText(id), Number(uint64_t(KindOf(task, views[i]))), decisions[i]});
  }
}

void ReportData::AddRejected(const TraceTask& task, size_t num_kept,
                             const std::vector<std::string>& decisions,
                             const std::vector<PlaceView>& views) {
  for (const PlaceView& view : views) {
    const bool is_kept =
        static_cast<size_t>(view.place) < num_kept && view.place < task.outcome.num_accepted;
    if (!view.has_draft || is_kept) continue;
    AddRejectedToken(view.place, view.draft, FateOf(task, view), decisions[view.place],
                     CauseOfRejection(task.method, view.p, view.decision.zero_step));
  }
}

// The nodes that were not kept, by depth, and then the whole tree.
absl::Status ReportData::AddTree(const TraceTask& task, size_t num_kept,
                                 const std::vector<std::string>& decisions,
                                 const RoundRebuilder& rebuilder, std::optional<size_t> in_batch) {
  const int32_t vocab_size = info_->vocab_size;
  const DraftTree tree(task, vocab_size);
  const bool has_rows = in_batch.has_value() && options_.num_candidates > 0;
  const auto nodes = ViewTree(task, vocab_size, &place_rows_, has_rows ? &rebuilder : nullptr,
                              in_batch.value_or(0));
  if (!nodes.ok()) return nodes.status();
  std::vector<const NodeView*> views(static_cast<size_t>(tree.num_nodes()));
  for (const NodeView& view : *nodes) views[view.node] = &view;
  std::vector<std::string> rejected(views.size(), "null");
  for (int32_t depth = 0; depth < tree.Depth(); ++depth) {
    for (const NodeView* view : views) {
      if (view == nullptr || view->fate == NodeFate::kOutside) continue;
      const int32_t place = tree.PlaceOf(view->node);
      const bool is_kept =
          view->fate == NodeFate::kAccepted && static_cast<size_t>(depth) < num_kept;
      if (tree.DepthOf(place) != depth || is_kept) continue;
      const bool is_on_path = depth <= task.outcome.num_accepted && tree.PlaceAt(depth) == place;
      rejected[view->node] = Number(rejected_.count());
      AddRejectedToken(depth, tree.TokenOf(view->node), FateOf(view->fate),
                       is_on_path ? decisions[depth] : "null",
                       CauseOfRejection(task.method, view->p, view->zero_step));
    }
  }
  for (const NodeView& view : *nodes) {
    const TokenId token = tree.TokenOf(view.node);
    nodes_.Add({Number(steps_.count() - 1), Number(uint64_t(view.node)),
                view.parent == kRoot ? "null" : Number(uint64_t(view.parent)), rejected[view.node],
                IdJson(token), IdText(token), Number(uint64_t(view.kind)),
                Number(uint64_t(view.fate)), JsonNumber(view.p), JsonNumber(view.q),
                JsonNumber(view.d), JsonNumber(view.bound), JsonNumber(view.coin)});
  }
  return absl::OkStatus();
}

void ReportData::AddRejectedToken(int32_t place, TokenId token, int fate,
                                  const std::string& decision, const RejectionCause& cause) {
  const bool was_rejected = fate == kFateRejected;
  rejected_.Add({Number(steps_.count() - 1), Number(uint64_t(place)), IdJson(token), IdText(token),
                 Number(uint64_t(fate)), decision, was_rejected ? Text(cause.words) : "null",
                 was_rejected ? Number(uint64_t(cause.kind)) : "null"});
}

void ReportData::AddDecision(const PlaceView& view) {
  const PlaceDecision& d = view.decision;
  const bool was_drawn = view.draw_coin.has_value();
  const bool is_block = view.task->method == VerifyMethod::kBlock;
  // `traversal` decides about paths, and t / d of the last child says nothing by itself.
  const bool has_bound = d.bound >= 0 && view.task->method != VerifyMethod::kTraversal;
  const bool has_token = view.token != kNoToken && (d.judged || view.task->decisions.empty());
  const int draft_kind = !view.has_draft ? 0 : view.kind == DraftKind::kOneHot ? 1 : 2;
  decisions_.Add({Number(steps_.count() - 1),
                  Number(uint64_t(view.depth)),
                  view.has_draft ? IdJson(view.draft) : "null",
                  view.has_draft ? IdText(view.draft) : "null",
                  Number(uint64_t(draft_kind)),
                  JsonNumber(view.p),
                  JsonNumber(view.q),
                  JsonNumber(view.accept_coin),
                  Number(uint64_t(view.verdict)),
                  has_token ? IdJson(view.token) : "null",
                  has_token ? IdText(view.token) : "null",
                  JsonNumber(view.token_p),
                  JsonNumber(view.draw_coin),
                  !was_drawn                             ? "null"
                  : d.draw_purpose == Purpose::kResidual ? "1"
                                                         : "0",
                  was_drawn ? JsonNumber(CoinToDouble(d.draw_interval.low)) : "null",
                  was_drawn ? JsonNumber(CoinToDouble(d.draw_interval.high)) : "null",
                  d.residual_mass >= 0 ? JsonNumber(d.residual_mass) : "null",
                  is_block && view.q ? JsonNumber(d.prefix) : "null",
                  has_bound ? JsonNumber(d.bound) : "null",
                  Text(WhyInWords(view))});
}

absl::Status ReportData::AddRows(const TraceRound& round, const PlaceView& view,
                                 const RoundRebuilder& rebuilder, std::optional<size_t> in_batch) {
  const std::string decision = Number(decisions_.count());
  std::string allowed = "null";
  if (in_batch && options_.num_candidates > 0) {
    absl::Status status = place_rows_.Read(rebuilder, *in_batch, view.place);
    if (!status.ok()) return status;
    if (place_rows_.is_masked()) allowed = Number(uint64_t(place_rows_.num_allowed()));
    std::vector<Candidate> best =
        place_rows_.Best(options_.num_candidates, {view.draft, view.token});
    for (const Candidate& c : place_rows_.BestForbidden(options_.num_candidates)) {
      const bool is_listed = std::any_of(best.begin(), best.end(),
                                         [&c](const Candidate& known) { return known.id == c.id; });
      if (!is_listed) best.push_back(c);
    }
    best.resize(std::min<size_t>(best.size(), 64));
    for (const Candidate& c : best) {
      candidates_.Add({decision, IdJson(c.id), IdText(c.id), JsonNumber(c.p),
                       place_rows_.has_q() ? JsonNumber(c.q) : "null", c.is_forbidden ? "1" : "0",
                       c.free_p > 0 ? JsonNumber(c.free_p) : "null"});
    }
  }
  const size_t place = view.place;
  if (place >= view.task->places.size()) return absl::OkStatus();
  const TracePlace& record = view.task->places[place];
  if (record.mask_row < 0 && record.grammar_state == 0) return absl::OkStatus();
  const bool is_own = record.mask_row >= 0;
  const uint32_t index = is_own ? record.mask_row : record.grammar_mask;
  uint64_t hash = 0;
  for (const TraceRow& row : round.rows) {
    const TraceTensor tensor = is_own ? TraceTensor::kMask : TraceTensor::kGrammarMask;
    if (row.tensor == tensor && row.index == index) hash = row.hash;
  }
  grammar_.Add({decision, is_own ? "null" : JsonString(fmt::format("{:#x}", record.grammar_state)),
                hash == 0 ? "null" : JsonString(fmt::format("{:#x}", hash)), allowed});
  return absl::OkStatus();
}

std::string ReportData::Sequences() const {
  JsonTable table({"request_id", "handle", "method", "seed", "params", "finish", "grammar",
                   "rounds", "tokens", "drafted", "accepted"});
  const auto text = [&](std::string_view value) {
    return value.empty() ? std::string("null") : Number(strings_.IndexOf(value));
  };
  for (const SequenceEntry& entry : book_.entries()) {
    const TraceOpening& opening = entry.opening;
    std::string params;
    for (const auto& [name, value] : opening.numbers) {
      const ParamRow* const row = FindParam(name);
      const bool is_choice = row != nullptr && !row->choices.empty();
      params += fmt::format("{}{}: {}", params.empty() ? "" : ", ", JsonString(name),
                            is_choice ? JsonString(NumberText(name, value)) : JsonNumber(value));
    }
    for (const std::string& name : opening.lists) {
      params += fmt::format("{}{}: \"given\"", params.empty() ? "" : ", ", JsonString(name));
    }
    const bool has_reason = entry.reason != FinishReason::kNone;
    table.Add({text(opening.request_id), text(HandleText(opening.sequence)),
               entry.has_opening ? text(MethodText(opening.method)) : "null",
               entry.has_opening ? JsonString(fmt::format("{}", opening.seed)) : "null",
               fmt::format("{{{}}}", params), has_reason ? text(NameOf(entry.reason)) : "null",
               text(opening.constraint), Number(entry.num_rounds), Number(entry.num_kept),
               Number(entry.num_drafted), Number(entry.num_judged_accepted)});
  }
  return table.Json();
}

std::string ReportData::Facts(const std::string& file_name, std::vector<std::string> warnings,
                              std::string_view doctor) const {
  if (full_at_) {
    warnings.push_back(
        fmt::format("The report ends before round {}: it has {} tokens already. "
                    "Give --rounds or --request to see others.",
                    *full_at_, tokens_.count()));
  }
  if (options_.filter.first_round || options_.filter.last_round ||
      !options_.filter.TakesEverySequence()) {
    warnings.push_back(
        "The report shows a part of the trace: --rounds, --request or --sequence "
        "leave out the rest. The counts are of the whole trace.");
  }
  if (!text_.has_vocabulary() && !info_->anonymised) {
    warnings.push_back("Without --tokenizer=FILE tokens have only their ids.");
  }
  uint64_t num_dropped = 0;
  for (const auto& [file, rounds] : dropped_) num_dropped += rounds;
  std::string list;
  for (const std::string& warning : warnings) {
    list += (list.empty() ? "" : ", ") + JsonString(warning);
  }
  return fmt::format(
      "{{\"file\": {}, \"specd\": {}, \"backend\": {}, \"device\": {}, \"vocab_size\": {}, "
      "\"level\": \"{}\", \"started\": \"{}\", \"rounds\": {}, \"sequences\": {}, \"tokens\": {}, "
      "\"drafted\": {}, \"accepted\": {}, \"dropped\": {}, \"warnings\": [{}]{}}}",
      JsonString(file_name), JsonString(info_->specd_version), JsonString(info_->backend),
      JsonString(info_->processor), info_->vocab_size, NameOf(level_),
      TimeText(info_->start_unix_ns), num_rounds_, book_.entries().size(), num_kept_, num_drafted_,
      num_accepted_, num_dropped, list, doctor);
}

std::string ReportData::Json(const std::string& file_name, std::vector<std::string> warnings,
                             std::string_view doctor) const {
  std::string text = fmt::format("{{\"version\": 1,\n\"trace\": {}",
                                 Facts(file_name, std::move(warnings), doctor));
  const std::string sequences = Sequences();
  const auto add = [&](std::string_view name, const std::string& json) {
    if (!json.empty()) text += fmt::format(",\n\"{}\": {}", name, json);
  };
  add("strings", strings_.Json());
  add("sequences", sequences);
  add("steps", steps_.Json());
  add("tokens", tokens_.Json());
  add("rejected", rejected_.Json());
  add("decisions", decisions_.Json());
  add("candidates", candidates_.Json());
  add("grammar", grammar_.Json());
  add("nodes", nodes_.Json());
  return text + "}";
}

}  // namespace specd::replay
