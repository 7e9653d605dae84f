#include "daemon/session/session_calls.h"

#include <fmt/format.h>

#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

static_assert(kCallChildrenMax == kSamplesMax && kCallChosenMax == kLogprobTokenIdsMax);

// Coins that may be set for all open sequences of a session together: 32 MiB. Coins are the only
// memory of a session that grows between two openings.
constexpr size_t kCoinsMax = size_t{1} << 20;

// The verifier's first refusal, if there is one. These calls change nothing, so the whole call can
// be refused with the reason.
template <class Result>
absl::Status Judge(std::span<const Result> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].status != RoundStatus::kInvalid) continue;
    return Invalid("requests", fmt::format("requests[{}]: {}", i, results[i].reason));
  }
  return absl::OkStatus();
}

}  // namespace

SessionCalls::SessionCalls(SessionState* state, const SessionMemory* memory)
    : state_(*state),
      memory_(*memory),
      draft_results_(state->options.limits.max_batch),
      score_results_(state->options.limits.max_batch),
      forced_results_(state->options.limits.max_batch),
      answers_(state->options.limits.max_batch) {}

absl::Status SessionCalls::CheckDraftInput(const DraftInput& input) const {
  if (input.row >= memory_.row_limits().draft_rows) {
    return Invalid("row", fmt::format("row = {}, but {} rows of SPECD_DRAFT_ROWS are bound",
                                      input.row, memory_.row_limits().draft_rows));
  }
  if (input.mask_row < -1 || (input.mask_row >= 0 && static_cast<uint64_t>(input.mask_row) >=
                                                         memory_.row_limits().mask_rows)) {
    return Invalid("mask_row",
                   fmt::format("mask_row = {}, but {} rows of SPECD_GRAMMAR_MASK are bound; -1 is "
                               "unconstrained",
                               input.mask_row, memory_.row_limits().mask_rows));
  }
  const int64_t max_path = state_.options.limits.path_max();
  if (input.num_prefix < 0 || input.num_prefix >= max_path) {
    return Invalid("num_prefix", fmt::format("num_prefix = {} is outside 0 .. {} (max_path of "
                                             "specd_open, less the token to be drawn)",
                                             input.num_prefix, max_path - 1));
  }
  if (input.sampling > DraftSampling::kMixed) {
    return Invalid("sampling", fmt::format("sampling = {} is unknown; use "
                                           "SPECD_WITH_REPLACEMENT (0), SPECD_WITHOUT_REPLACEMENT "
                                           "(1), SPECD_TOP_K_CHILDREN (2) or SPECD_MIXED_CHILDREN "
                                           "(3)",
                                           static_cast<uint32_t>(input.sampling)));
  }
  if (input.num_children < 1 || input.num_children > kSamplesMax) {
    return Invalid("num_children", fmt::format("num_children = {} is outside 1 .. {}",
                                               input.num_children, kSamplesMax));
  }
  return absl::OkStatus();
}

absl::Status SessionCalls::CheckScoreInput(const ScoreInput& input) const {
  const int64_t num_ids_max = state_.options.limits.max_output();
  if (input.num_ids < 1 || input.num_ids > num_ids_max) {
    return Invalid("num_ids", fmt::format("num_ids = {} is outside 1 .. {} (max_path + 1)",
                                          input.num_ids, num_ids_max));
  }
  for (int32_t i = 0; i < input.num_ids; ++i) {
    if (input.rows[i] >= memory_.row_limits().target_rows) {
      return Invalid("rows",
                     fmt::format("rows[{}] = {}, but {} rows of SPECD_TARGET_ROWS are bound", i,
                                 input.rows[i], memory_.row_limits().target_rows));
    }
    if (input.ids[i] < 0 ||
        static_cast<uint32_t>(input.ids[i]) >= state_.options.limits.vocab_size) {
      return Invalid("ids", fmt::format("ids[{}] = {} is outside 0 .. {}", i, input.ids[i],
                                        state_.options.limits.vocab_size - 1));
    }
  }
  const ScoreRequest& request = input.request;
  if (request.num_chosen < 0 || request.num_chosen > static_cast<int32_t>(kLogprobTokenIdsMax)) {
    return Invalid("chosen_ids", fmt::format("chosen_ids has {} ids, 0 .. {} are allowed",
                                             request.num_chosen, kLogprobTokenIdsMax));
  }
  for (int32_t i = 0; i < request.num_chosen; ++i) {
    if (request.chosen[i] < 0 ||
        static_cast<uint32_t>(request.chosen[i]) >= state_.options.limits.vocab_size) {
      return Invalid("chosen_ids",
                     fmt::format("chosen_ids[{}] = {} is outside 0 .. {}", i, request.chosen[i],
                                 state_.options.limits.vocab_size - 1));
    }
  }
  // The raw modes need no sequence. The others take a sequence's steps.
  if (!IsRaw(request.mode)) {
    return Invalid("mode", fmt::format("mode = {} needs a sequence; use SPECD_RAW_LOGPROB (0) or "
                                       "SPECD_RAW_LOGIT (2)",
                                       static_cast<uint32_t>(request.mode)));
  }
  if (request.num_top < 0 || request.num_top > kLogprobsMax) {
    return Invalid("num_top",
                   fmt::format("num_top = {} is outside 0 .. {}", request.num_top, kLogprobsMax));
  }
  if (static_cast<uint32_t>(NumScores(request)) > state_.options.limits.max_scores) {
    return Invalid("num_top",
                   fmt::format("num_top = {} and {} chosen_ids are {} scores for each id, but "
                               "max_scores_per_token = {}; raise it in specd_options, or ask for "
                               "fewer",
                               request.num_top, request.num_chosen, NumScores(request),
                               state_.options.limits.max_scores));
  }
  return absl::OkStatus();
}

void SessionCalls::NoteFailure(RoundStatus status) {
  if (status != RoundStatus::kDeviceError) return;
  state_.device_failed.store(true, std::memory_order_relaxed);
}

void SessionCalls::Do(const SubmissionCopy& submission, bool is_alone) {
  absl::Status status;
  switch (submission.kind()) {
    case SubmissionKind::kRound:
      SPECD_CHECK(false);
      break;
    case SubmissionKind::kSampleDraft:
    case SubmissionKind::kScore:
    case SubmissionKind::kForcedTokens:
      status = Begin(submission, is_alone);
      if (status.ok()) return RunPiece(submission);
      break;
    case SubmissionKind::kSetCoins:
      status = SetCoins(submission.coins_call());
      break;
  }
  Answer(submission, std::move(status));
}

absl::Status SessionCalls::Begin(const SubmissionCopy& submission, bool is_alone) {
  const std::span<const DraftInput> drafts = submission.draft_calls();
  const std::span<const ScoreInput> scores = submission.score_calls();
  for (const DraftInput& input : drafts) {
    if (absl::Status status = CheckDraftInput(input); !status.ok()) return status;
  }
  for (const ScoreInput& input : scores) {
    if (absl::Status status = CheckScoreInput(input); !status.ok()) return status;
  }
  for (const ForcedInput& input : submission.forced_calls()) {
    if (absl::Status status = CheckForcedInput(input); !status.ok()) return status;
  }
  num_forced_ = 0;
  if (submission.kind() == SubmissionKind::kSampleDraft) {
    const std::span<DraftResult> results(draft_results_.data(), drafts.size());
    state_.verifier->BeginCall(drafts, results, is_alone);
  } else if (submission.kind() == SubmissionKind::kScore) {
    const std::span<ScoreResult> results(score_results_.data(), scores.size());
    state_.verifier->BeginCall(scores, results, is_alone);
  }
  return absl::OkStatus();
}

void SessionCalls::RunPiece(const SubmissionCopy& submission) {
  const bool is_forced = submission.kind() == SubmissionKind::kForcedTokens;
  const bool has_more =
      is_forced ? RunForcedPiece(submission.forced_calls()) : state_.verifier->RunCallPiece();
  state_.between_pieces.store(has_more, std::memory_order_relaxed);
  if (has_more) return;
  if (is_forced) return Answer(submission, EndForced(submission.forced_calls()));
  Answer(submission, submission.kind() == SubmissionKind::kSampleDraft
                         ? EndSampleDraft(submission.draft_calls())
                         : EndScore(submission.score_calls()));
}

bool SessionCalls::RunForcedPiece(std::span<const ForcedInput> inputs) {
  if (num_forced_ < inputs.size()) {
    state_.verifier->FindForced(inputs[num_forced_], num_forced_, &forced_results_[num_forced_]);
    ++num_forced_;
  }
  return num_forced_ < inputs.size();
}

void SessionCalls::CallOff(const SubmissionCopy& submission) {
  Drop();
  Answer(submission,
         MakeError(SPECD_ERROR_SHUTDOWN, "",
                   "the daemon stopped in the middle of a long call; nothing was done"));
}

void SessionCalls::Drop() {
  state_.between_pieces.store(false, std::memory_order_relaxed);
  state_.verifier->CallOffCall();
}

void SessionCalls::Answer(const SubmissionCopy& submission, absl::Status status) {
  if (state_.has_faulted.load()) {
    status = MakeError(SPECD_ERROR_REGION, "region",
                       "a page of the bound memory was missing when it was read (SIGBUS), so this "
                       "session ends; write the memory before it is bound, with pages that exist");
  }
  const uint64_t done_ns = state_.options.clock->NowNs();
  if (!status.ok()) {
    state_.channel.Refuse(submission, status, done_ns);
  } else if (submission.kind() == SubmissionKind::kSampleDraft) {
    const size_t count = submission.draft_calls().size();
    state_.channel.Complete(submission, std::span<const DraftResult>(draft_results_.data(), count),
                            done_ns);
  } else {
    const size_t count = submission.score_calls().size() + submission.forced_calls().size();
    state_.channel.Complete(submission, std::span<const SequenceResult>(answers_.data(), count),
                            done_ns);
  }
}

absl::Status SessionCalls::EndSampleDraft(std::span<const DraftInput> inputs) {
  const std::span<DraftResult> results(draft_results_.data(), inputs.size());
  state_.verifier->EndCall(results);
  for (const DraftResult& result : results) NoteFailure(result.status);
  return Judge<DraftResult>(results);
}

absl::Status SessionCalls::EndScore(std::span<const ScoreInput> inputs) {
  const std::span<ScoreResult> results(score_results_.data(), inputs.size());
  state_.verifier->EndCall(inputs, results);
  for (size_t i = 0; i < results.size(); ++i) {
    NoteFailure(results[i].status);
    SequenceResult& answer = answers_[i];
    answer = {};
    answer.status = results[i].status;
    answer.refusal = results[i].refusal;
    answer.num_kept = static_cast<uint32_t>(results[i].num_scored);
    answer.tokens = inputs[i].ids;
    answer.scores_per_token = static_cast<uint32_t>(results[i].scores_per_token);
    answer.scores = results[i].scores;
  }
  return Judge<ScoreResult>(results);
}

absl::Status SessionCalls::CheckForcedInput(const ForcedInput& input) const {
  const int64_t max_path = state_.options.limits.path_max();
  if (input.num_prefix < 0 || input.num_prefix > max_path) {
    return Invalid("num_prefix", fmt::format("num_prefix = {} is outside 0 .. {} (max_path of "
                                             "specd_open)",
                                             input.num_prefix, max_path));
  }
  if (input.num_ids_max < 1 || input.num_ids_max > max_path + 1) {
    return Invalid("max_ids", fmt::format("max_ids = {} is outside 1 .. {} (max_path + 1)",
                                          input.num_ids_max, max_path + 1));
  }
  return absl::OkStatus();
}

absl::Status SessionCalls::EndForced(std::span<const ForcedInput> inputs) {
  const std::span<ForcedResult> results(forced_results_.data(), inputs.size());
  for (size_t i = 0; i < results.size(); ++i) {
    SequenceResult& answer = answers_[i];
    answer = {};
    answer.sequence = results[i].sequence;
    answer.status = results[i].status;
    answer.num_kept = static_cast<uint32_t>(results[i].ids.size());
    answer.tokens = results[i].ids.data();
  }
  return Judge<ForcedResult>(results);
}

absl::Status SessionCalls::SetCoins(const CoinsCall& call) {
  for (size_t i = 0; i < call.coins.size(); ++i) {
    const CoinRecord& coin = call.coins[i];
    if (coin.purpose < SPECD_COIN_SAMPLE || coin.purpose > SPECD_COIN_RESIDUAL) {
      return Invalid("purpose", fmt::format("coins[{}].purpose = {} is no SPECD_COIN_... (1 .. 4)",
                                            i, coin.purpose));
    }
    if (coin.value >> kCoinBits != 0) {
      return Invalid("value",
                     fmt::format("coins[{}].value = {} is outside 0 .. 2^53 - 1", i, coin.value));
    }
  }
  const Sequence* const found = state_.verifier->Find(call.sequence);
  if (found == nullptr) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     state_.verifier->sequences().WhyNotFound(call.sequence));
  }
  if (found->phase == SequencePhase::kPending) {
    return MakeError(SPECD_ERROR_STATE, "sequence", WhyPending(call.sequence));
  }
  size_t others = 0;
  state_.verifier->sequences().ForEachOpen([&](const Sequence& sequence) {
    if (sequence.handle != call.sequence) others += sequence.coins.size();
  });
  if (others + call.coins.size() > kCoinsMax) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "num_coins",
                     fmt::format("num_coins = {}, and {} are set for other open sequences; a "
                                 "session may have {}: close sequences, or set none for them",
                                 call.coins.size(), others, kCoinsMax));
  }
  std::vector<InjectedCoin> injected;
  injected.reserve(call.coins.size());
  for (const CoinRecord& coin : call.coins) {
    injected.push_back({.key = {.position = coin.position,
                                .round_base = coin.round_base,
                                .node = coin.node,
                                .purpose = static_cast<Purpose>(coin.purpose)},
                        .coin = coin.value});
  }
  SPECD_CHECK(state_.verifier->SetCoins(call.sequence, std::move(injected)));
  return absl::OkStatus();
}

}  // namespace specd
