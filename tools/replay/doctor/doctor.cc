#include "tools/replay/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tools/replay/draft_tree.h"
#include "tools/replay/names.h"
#include "tools/replay/place_view.h"
#include "tools/replay/rejection_cause.h"
#include "tools/replay/task_rules.h"
#include "tools/replay/tree_view.h"

namespace specd::replay {
namespace {

constexpr size_t kGroupsMax = 12;

// "256 .. 511": powers of two.
std::string ContextLabel(uint64_t length) {
  const uint32_t bits = std::bit_width(length);
  const uint64_t low = bits == 0 ? 0 : uint64_t{1} << (bits - 1);
  return fmt::format("{:>6} .. {}", low, std::max<uint64_t>(2 * low, 1) - 1);
}

}  // namespace

absl::Status Doctor::Take(const TraceItem& item, const RowFileReader* rows) {
  book_.Take(item);
  if (const auto* info = std::get_if<TraceInfo>(&item.record)) {
    info_ = *info;
    if (!row_tests_) row_tests_.emplace(backend_, static_cast<int32_t>(info->vocab_size));
  }
  const auto* const round = std::get_if<TraceRound>(&item.record);
  return round == nullptr ? absl::OkStatus() : Take(*round, rows);
}

bool Doctor::IsAsked(const TraceRound& round, const TraceTask& task) const {
  const TraceAnswer* const answer = AnswerOf(round, task);
  return answer != nullptr && HasOutcome(round, task) && filter_.TakesRound(round.number) &&
         filter_.TakesSequence(answer->sequence, book_.RequestOf(answer->sequence)) &&
         CheckTask(round, task, static_cast<int32_t>(info_->vocab_size)).ok();
}

absl::Status Doctor::Take(const TraceRound& round, const RowFileReader* rows) {
  if (!row_tests_ || static_cast<uint32_t>(book_.vocab_size()) != info_->vocab_size) {
    return absl::InvalidArgumentError("the recording has no info before its rounds");
  }
  RoundRebuilder rebuilder(static_cast<int32_t>(info_->vocab_size));
  const bool has_rows =
      round.level == TraceLevel::kRows && rows != nullptr && filter_.TakesRound(round.number);
  if (has_rows) {
    rebuilder.Rebuild(round, rows);
    if (!rebuilder.damage().ok()) return rebuilder.damage();
    if (absl::Status status = backend_->Run(&rebuilder); !status.ok()) return status;
    if (absl::Status status = row_tests_->Begin(rebuilder); !status.ok()) return status;
  }
  for (size_t i = 0; i < round.tasks.size(); ++i) {
    const TraceTask& task = round.tasks[i];
    if (IsAsked(round, task) && !task.tokens.empty()) {
      if (book_.NumDrawnOf(task) < task.tokens.size()) ++num_outside_;
      const std::optional<size_t> in_batch = has_rows ? rebuilder.InBatch(i) : std::nullopt;
      if (in_batch) {
        absl::Status status = TakeRows(round, rebuilder, i, *in_batch);
        if (!status.ok()) return status;
      } else {
        without_rows_.Add(!has_rows ? std::string("the round has no rows")
                                    : std::string(rebuilder.WhyNot(i).message()));
        TakeNumbers(round, task);
      }
    }
    Confirm(round, task);
  }
  if (has_rows) row_tests_->EndRound();
  return absl::OkStatus();
}

void Doctor::Confirm(const TraceRound& round, const TraceTask& task) {
  const TraceAnswer* const answer = AnswerOf(round, task);
  if (answer == nullptr) return;
  const size_t sequence = book_.IndexOf(answer->sequence);
  const size_t num_kept = std::min<size_t>(answer->num_kept, task.confirmed.size());
  for (size_t i = 0; i < num_kept; ++i) ngrams_.Confirm(sequence, task.confirmed[i]);
}

absl::Status Doctor::TakeRows(const TraceRound& round, const RoundRebuilder& rebuilder,
                              size_t task_index, size_t in_batch) {
  const TraceTask& task = round.tasks[task_index];
  const size_t sequence = book_.IndexOf(AnswerOf(round, task)->sequence);
  const bool is_tree = DraftTree::IsTree(task);
  std::vector<JudgedDraft> judged;
  if (!is_tree) {
    judged = JudgedChain(*info_, task, DecisionsOf(task, rebuilder.decisions(in_batch)),
                         row_tests_->Residuals(in_batch));
  }
  const auto overlaps = row_tests_->Take(rebuilder, in_batch, task, sequence, judged);
  if (!overlaps.ok()) return overlaps.status();
  if (is_tree) return TakeTree(round, task, &rebuilder, in_batch);
  round_tests_.Take(task, judged, IsWholeQ(round, task));
  for (size_t k = 0; k < judged.size(); ++k) {
    AddToGroups(round, task, judged[k]);
    AddNgram(task, sequence, in_batch, judged[k], (*overlaps)[k]);
  }
  return absl::OkStatus();
}

void Doctor::TakeNumbers(const TraceRound& round, const TraceTask& task) {
  if (DraftTree::IsTree(task)) {
    // Without rows it cannot fail: it reads none.
    (void)TakeTree(round, task, nullptr, 0);
    return;
  }
  const std::vector<JudgedDraft> judged = JudgedChain(*info_, task, task.decisions, {});
  round_tests_.Take(task, judged, IsWholeQ(round, task));
  for (const JudgedDraft& draft : judged) {
    AddToGroups(round, task, draft);
    const size_t place = draft.place;
    if (place >= task.decisions.size() || task.decisions[place].overlap < 0) continue;
    if (task.method != VerifyMethod::kToken || !draft.is_drawn) continue;
    overlaps_.Add(draft.is_accepted, std::min(task.decisions[place].overlap, 1.0));
  }
}

// Each child that was judged by a coin of its own counts. Its place is its depth.
absl::Status Doctor::TakeTree(const TraceRound& round, const TraceTask& task,
                              const RoundRebuilder* rebuilder, size_t in_batch) {
  const int32_t vocab_size = info_->vocab_size;
  const DraftTree tree(task, vocab_size);
  const auto nodes = ViewTree(task, vocab_size, row_tests_->place_rows(), rebuilder, in_batch);
  if (!nodes.ok()) return nodes.status();
  std::vector<JudgedDraft> passed;
  for (const NodeView& view : *nodes) {
    if (view.fate != NodeFate::kAccepted && view.fate != NodeFate::kRejected) continue;
    JudgedDraft draft;
    draft.node = view.node;
    draft.place = tree.DepthOf(tree.PlaceOf(view.node));
    draft.id = tree.TokenOf(view.node);
    draft.is_accepted = view.fate == NodeFate::kAccepted;
    draft.is_reached = true;
    draft.p = view.p;
    draft.zero_step = view.zero_step;
    if (view.bound && view.coin && task.method <= VerifyMethod::kTraversal) {
      draft.share = std::min(*view.bound, 1.0);
      draft.coin = view.coin;
      draft.passes = *view.coin < *view.bound;
      if (task.method == VerifyMethod::kTree) draft.probability = draft.share;
    }
    AddToGroups(round, task, draft);
    passed.push_back(draft);
  }
  round_tests_.Take(task, passed, false);
  return absl::OkStatus();
}

void Doctor::AddToGroups(const TraceRound& round, const TraceTask& task, const JudgedDraft& draft) {
  if (!draft.is_reached) return;
  const SequenceHandle sequence = AnswerOf(round, task)->sequence;
  const SequenceEntry* const entry = book_.Find(sequence);
  const std::string_view request = book_.RequestOf(sequence);
  const auto add = [&draft](AcceptanceSum* sum) { sum->Add(draft.is_accepted, draft.probability); };
  add(&all_);
  add(&places_[fmt::format("{:>3}", draft.place)]);
  add(&sequences_[request.empty() ? HandleText(sequence) : std::string(request)]);
  add(&methods_[fmt::format("{}, {}", MethodText(task.method),
                            draft.is_drawn ? "drawn drafts" : "chosen drafts")]);
  if (text_.has_vocabulary()) add(&classes_[std::string(NameOf(text_.ClassOf(draft.id)))]);
  const size_t place = draft.place;
  const bool has_state = place < task.places.size() && task.places[place].grammar_state != 0;
  if (has_state && !DraftTree::IsTree(task)) {
    add(&grammar_states_[fmt::format("{:#x}", task.places[place].grammar_state)]);
  }
  const uint64_t prompt = entry == nullptr ? 0 : entry->opening.num_prompt_ids;
  add(&contexts_[ContextLabel(prompt + task.first_position + place)]);
  add(times_.At(round.times.taken));
  if (!DraftTree::IsTree(task)) lengths_.Add(draft.place, draft.is_accepted);
  if (draft.is_accepted) return;
  ++causes_[CauseOfRejection(task.method, draft.p, draft.zero_step).words];
}

void Doctor::AddNgram(const TraceTask& task, size_t sequence, size_t in_batch,
                      const JudgedDraft& draft, double overlap) {
  const std::span<const float> p = row_tests_->P(in_batch, draft.place);
  if (p.empty() || overlap < 0 || info_->anonymised) return;
  const std::vector<TokenId> prefix(task.tokens.begin(), task.tokens.begin() + draft.place);
  const TokenId next = ngrams_.Next(sequence, prefix);
  const double accepted = next == kNoToken ? 0 : static_cast<double>(p[next]);
  ngram_.Add(accepted);
  ngram_gain_.Add(accepted - overlap);
}

std::vector<Group> Doctor::InOrder(const Groups& groups) {
  std::vector<Group> list;
  for (const auto& [label, sum] : groups) list.push_back({label, sum});
  return list;
}

std::vector<Group> Doctor::Largest(const Groups& groups) {
  std::vector<Group> list = InOrder(groups);
  std::stable_sort(list.begin(), list.end(),
                   [](const Group& a, const Group& b) { return a.sum.count > b.sum.count; });
  list.resize(std::min(list.size(), kGroupsMax));
  return list;
}

std::vector<Group> Doctor::Times() const {
  std::vector<Group> list;
  for (size_t i = 0; i < times_.groups().size(); ++i) {
    if (times_.groups()[i].count == 0) continue;
    list.push_back({fmt::format("{:.6g} s", times_.StartSeconds(i)), times_.groups()[i]});
  }
  return list;
}

}  // namespace specd::replay
