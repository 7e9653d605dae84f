#include "tools/replay/answer_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "speculative/params/param_numbers.h"
#include "speculative/params/params.h"
#include "speculative/sequence/finish_rules.h"
#include "tools/replay/draft_tree.h"
#include "tools/replay/names.h"
#include "tools/replay/sequence_book.h"

namespace specd::replay {
namespace {

bool IsCommitted(const TraceAnswer& answer) {
  return specd::IsCommitted(SequenceResult{.status = answer.status});
}

// The form of the scores, which needs no row: the scores of one token are its own, the best ones in
// order, and the chosen ids.
class ScoreForm {
 public:
  explicit ScoreForm(const TraceTask& task)
      : task_(task),
        num_top_(static_cast<size_t>(task.scores.num_top)),
        per_token_(1 + num_top_ + task.chosen.size()) {}

  // Empty: the form is right, or there are no scores.
  std::string Difference() const {
    const std::vector<TokenScore>& scores = task_.token_scores;
    if (!task_.scores.enabled || scores.size() != per_token_ * task_.confirmed.size()) return {};
    for (size_t i = 0; i < task_.confirmed.size(); ++i) {
      std::string text =
          OfToken(std::span(scores).subspan(i * per_token_, per_token_), task_.confirmed[i]);
      if (!text.empty()) return fmt::format("the scores of token {}: {}", i, text);
    }
    return {};
  }

 private:
  std::string OfToken(std::span<const TokenScore> scores, TokenId token) const {
    if (scores[0].id != token) {
      return fmt::format("score 0 is of id {}, and the token is {}", scores[0].id, token);
    }
    for (size_t i = 0; i < task_.chosen.size(); ++i) {
      const TokenId id = scores[1 + num_top_ + i].id;
      if (id == task_.chosen[i]) continue;
      return fmt::format("score {} is of id {}, and {} was chosen", 1 + num_top_ + i, id,
                         task_.chosen[i]);
    }
    const std::span<const TokenScore> best = scores.subspan(1, num_top_);
    for (size_t i = 0; i < best.size(); ++i) {
      if (best[i].id == kNoToken) continue;  // the row has fewer ids
      if (const std::string text = OfBest(best, i); !text.empty()) return text;
    }
    for (size_t i = 0; i < scores.size(); ++i) {
      if (i >= 1 && i <= num_top_) continue;
      if (std::string text = OfListed(best, scores[i], i); !text.empty()) return text;
    }
    return {};
  }

  // A score that also stands among the best, or ought to.
  static std::string OfListed(std::span<const TokenScore> best, const TokenScore& score, size_t i) {
    for (const TokenScore& listed : best) {
      if (listed.id != score.id) continue;
      if (listed.value == score.value && listed.rank == score.rank) return {};
      return fmt::format("score {} and the one of the same id {} among the best differ", i,
                         score.id);
    }
    if (best.empty() || best.back().id == kNoToken || !IsBefore(score, best.back())) return {};
    return fmt::format("score {} of id {} belongs among the best, which do not list it", i,
                       score.id);
  }

  static bool IsBefore(const TokenScore& a, const TokenScore& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  }

  // Value descending, then id ascending; the rank counts strictly greater values.
  static std::string OfBest(std::span<const TokenScore> best, size_t i) {
    if (i > 0 && !IsBefore(best[i - 1], best[i])) {
      return fmt::format("score {} is out of order", i + 1);
    }
    const auto greater = std::count_if(best.begin(), best.end(), [&](const TokenScore& other) {
      return other.value > best[i].value;
    });
    if (best[i].rank == greater + 1) return {};
    return fmt::format("score {} has rank {}, and {} of the best are greater", i + 1, best[i].rank,
                       greater);
  }

  const TraceTask& task_;
  const size_t num_top_;
  const size_t per_token_;
};

}  // namespace

struct AnswerBook::Texts {
  template <class A, class B>
  void Expect(bool is_equal, std::string_view member, const A& recorded, std::string_view why,
              const B& expected) {
    if (is_equal) return;
    list.push_back(fmt::format("answer: {} is {}, and {} {}", member, recorded, why, expected));
  }
  std::vector<std::string> list;
};

void AnswerBook::Open(const TraceOpening& opening) {
  const auto [place, is_new] = states_.try_emplace(opening.sequence);
  State& state = place->second;
  if (is_new) state.kept = opening.kept_tokens;
  SequenceParams params;
  // Recorders that name no build may leave parameters out of an opening.
  bool is_known = !info_.anonymised && !info_.build.empty();
  for (const auto& [name, value] : opening.numbers) {
    const ParamRow* const row = FindParam(name);
    if (row == nullptr || !IsNumber(*row) || !SetNumber(name, value, &params).ok()) {
      is_known = false;  // of another version of specd
    }
  }
  if (!is_known) return;
  const bool has_stops = std::any_of(
      opening.lists.begin(), opening.lists.end(),
      [](const std::string& name) { return name == "stop_strings" || name == "stop_regex"; });
  state.rules = {.stop_token_ids = opening.stop_token_ids,
                 .ignore_eos = params.ignore_eos,
                 .min_tokens = params.min_tokens,
                 .max_tokens = params.max_tokens,
                 .may_stop_early = has_stops || !opening.constraint.empty()};
}

void AnswerBook::Take(const TraceRecord& record) {
  if (const auto* info = std::get_if<TraceInfo>(&record)) info_ = *info;
  if (const auto* opening = std::get_if<TraceOpening>(&record)) Open(*opening);
  if (const auto* end = std::get_if<TraceEnd>(&record)) {
    if (end->reason == FinishReason::kNone) {
      states_.erase(end->sequence);
    } else {
      State& state = states_[end->sequence];
      state.kept_at_end = end->kept_tokens;
      state.reason = end->reason;
      state.stop_token = std::nullopt;  // the record does not name it
    }
  }
  const auto* const round = std::get_if<TraceRound>(&record);
  if (round == nullptr) return;
  // Rounds before it were not recorded, or were cut off, and may have kept tokens.
  if (round->number != last_number_ + 1) {
    for (auto& [sequence, state] : states_) state.kept = std::nullopt;
  }
  last_number_ = round->number;
}

void AnswerBook::Forget(SequenceHandle sequence) {
  const auto found = states_.find(sequence);
  if (found != states_.end()) found->second.kept = std::nullopt;
}

const AnswerBook::State* AnswerBook::Find(SequenceHandle sequence) const {
  const auto found = states_.find(sequence);
  return found == states_.end() ? nullptr : &found->second;
}

std::vector<std::string> AnswerBook::Check(const TraceRound& round, const TraceAnswer& answer,
                                           const TraceTask* task) {
  Texts texts;
  if (task == nullptr) {
    CheckNothingVerified(answer, &texts);
    return std::move(texts.list);
  }
  if (!HasOutcome(round, *task)) {
    Forget(answer.sequence);
    return {};
  }
  // If a round ran ahead of its sequence's end, the engine never received its outcome.
  if (!IsCommitted(answer)) {
    const State* const before = Find(answer.sequence);
    const bool goes_on = before != nullptr && before->kept && before->reason == FinishReason::kNone;
    texts.Expect(answer.status != RoundStatus::kFinished || !goes_on, "status",
                 NameOf(answer.status), "the sequence", "goes on");
    CheckNothingVerified(answer, &texts);
    return std::move(texts.list);
  }
  CheckCounts(answer, *task, &texts);
  CheckEnd(answer, *task, &texts);
  if (std::string text = ScoreForm(*task).Difference(); !text.empty()) texts.list.push_back(text);
  State& state = states_[answer.sequence];
  state.kept = answer.total_kept;
  state.reason = answer.finish_reason;
  state.stop_token = answer.stop_token;
  return std::move(texts.list);
}

void AnswerBook::CheckCounts(const TraceAnswer& answer, const TraceTask& task, Texts* texts) const {
  const TaskOutcome& outcome = task.outcome;
  const uint32_t num_tokens = outcome.num_tokens;
  texts->Expect(answer.num_kept <= num_tokens, "num_kept", answer.num_kept, "the round confirmed",
                num_tokens);
  const auto accepted =
      std::min(static_cast<uint32_t>(std::max(outcome.num_accepted, 0)), answer.num_kept);
  texts->Expect(answer.num_accepted == accepted, "num_accepted", answer.num_accepted,
                "the accepted draft tokens among the kept ones are", accepted);
  const State* const state = Find(answer.sequence);
  const bool has_before = state != nullptr && state->kept.has_value();
  // The host made the task while earlier rounds ran, so its positions are older.
  if (!task.continues) {
    const uint32_t total = task.round_base + answer.num_kept;
    texts->Expect(answer.total_kept == total, "total_kept", answer.total_kept,
                  "the round's base and num_kept give", total);
    texts->Expect(!has_before || task.round_base == *state->kept, "the round's base",
                  task.round_base, "the answer before ended at", has_before ? *state->kept : 0);
    texts->Expect(task.first_position == task.round_base, "the first position", task.first_position,
                  "the round's base is", task.round_base);
  } else if (has_before) {
    const uint32_t total = *state->kept + answer.num_kept;
    texts->Expect(answer.total_kept == total, "total_kept", answer.total_kept,
                  "the answer before and num_kept give", total);
  }
  if (task.path.empty() || DraftTree::IsTree(task)) return;
  for (size_t i = 0; i < task.path.size(); ++i) {
    texts->Expect(task.path[i] == static_cast<int32_t>(i), fmt::format("node {} of the path", i),
                  task.path[i], "the draft is a chain, whose node is", i);
  }
  texts->Expect(task.path.size() == static_cast<size_t>(outcome.num_accepted),
                "the length of the path", task.path.size(), "the accepted draft tokens are",
                outcome.num_accepted);
}

void AnswerBook::CheckEnd(const TraceAnswer& answer, const TraceTask& task, Texts* texts) const {
  const bool is_good = answer.status == RoundStatus::kOk;
  texts->Expect(!is_good || answer.refusal == Refusal::kNone, "refusal",
                RefusalText(answer.refusal), "the status is", NameOf(answer.status));
  texts->Expect(is_good || answer.finish_reason == FinishReason::kError, "finish_reason",
                NameOf(answer.finish_reason), "a sequence with that status ends by",
                NameOf(FinishReason::kError));
  const State* const state = Find(answer.sequence);
  const bool has_rules = state != nullptr && state->rules.has_value();
  const uint32_t num_tokens = task.outcome.num_tokens;
  if (!has_rules) {
    // Without parameters only the ways to end are known.
    const bool may_end = answer.finish_reason != FinishReason::kNone || info_.anonymised;
    texts->Expect(may_end || answer.num_kept == num_tokens, "num_kept", answer.num_kept,
                  "a sequence that goes on keeps", num_tokens);
    texts->Expect(answer.stop_token == kNoToken || answer.finish_reason == FinishReason::kStop,
                  "stop_token", answer.stop_token, "the finish reason is",
                  NameOf(answer.finish_reason));
    return;
  }
  const Rules& rules = *state->rules;
  const FinishRules walked = {
      .stop_token_ids = rules.stop_token_ids,
      .eos_token_ids = rules.ignore_eos ? std::span<const TokenId>() : info_.eos_token_ids,
      .min_tokens = rules.min_tokens,
      .max_tokens = rules.max_tokens};
  FinishWalk walk = WalkFinishRules(walked, int64_t{answer.total_kept} - int64_t{answer.num_kept},
                                    task.confirmed);
  const bool is_bad = task.outcome.status != OutcomeStatus::kOk;
  if (walk.reason == FinishReason::kNone && is_bad) walk.reason = FinishReason::kError;
  const uint32_t num_kept = walk.num_kept;
  const bool stops_early =
      rules.may_stop_early && answer.num_kept <= num_kept && answer.stop_token == kNoToken &&
      (answer.finish_reason == FinishReason::kStop || answer.finish_reason == FinishReason::kError);
  if (stops_early) return;
  texts->Expect(answer.num_kept == num_kept, "num_kept", answer.num_kept, "the finish rules keep",
                num_kept);
  texts->Expect(answer.finish_reason == walk.reason, "finish_reason", NameOf(answer.finish_reason),
                "the finish rules give", NameOf(walk.reason));
  texts->Expect(answer.stop_token == walk.stop_token, "stop_token", answer.stop_token,
                "the finish rules give", walk.stop_token);
  const RoundStatus status =
      walk.reason == FinishReason::kError ? RoundStatus::kBadDistribution : RoundStatus::kOk;
  texts->Expect(answer.status == status, "status", NameOf(answer.status), "the outcome gives",
                NameOf(status));
}

void AnswerBook::CheckNothingVerified(const TraceAnswer& answer, Texts* texts) const {
  texts->Expect(answer.num_kept == 0, "num_kept", answer.num_kept, "nothing was verified, which is",
                0);
  texts->Expect(answer.num_accepted == 0, "num_accepted", answer.num_accepted,
                "nothing was verified, which is", 0);
  const State* const state = Find(answer.sequence);
  if (state == nullptr || answer.status != RoundStatus::kFinished) return;
  const std::optional<uint32_t>& kept = state->kept_at_end ? state->kept_at_end : state->kept;
  if (!kept.has_value() || state->reason == FinishReason::kNone) return;
  texts->Expect(answer.total_kept == *kept, "total_kept", answer.total_kept,
                "the sequence ended at", *kept);
  texts->Expect(answer.finish_reason == state->reason, "finish_reason",
                NameOf(answer.finish_reason), "the sequence ended by", NameOf(state->reason));
  if (!state->stop_token.has_value()) return;
  texts->Expect(answer.stop_token == *state->stop_token, "stop_token", answer.stop_token,
                "the sequence ended with", *state->stop_token);
}

}  // namespace specd::replay
