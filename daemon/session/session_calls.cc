// Session, the calls: specd as the drafter's sampler, scores of given ids, coins.
#include <fmt/format.h>

#include <utility>

#include "daemon/session/session.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

absl::Status Invalid(std::string_view field, std::string_view text) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field, text);
}

static_assert(kCallChildrenMax == kSamplesMax && kCallChosenMax == kLogprobTokenIdsMax);

// Coins that may be set for the open sequences of a session together: 32 MiB. They are the only
// memory of a session that grows between two openings.
constexpr size_t kCoinsMax = size_t{1} << 20;

// A count that does not fit is refused as a count out of range.
int32_t Signed(uint32_t value) {
  return value > INT32_MAX ? INT32_MAX : static_cast<int32_t>(value);
}

// What the verifier refused, if it refused anything: these calls change nothing, so a whole call
// can be refused and say why.
template <class Result>
absl::Status Judge(std::span<const Result> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].status != RoundStatus::kInvalid) continue;
    return Invalid("requests", fmt::format("requests[{}]: {}", i, results[i].reason));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Session::CheckDraftInput(const DraftInput& input) {
  if (input.row >= row_limits_.draft_rows) {
    return Invalid("row", fmt::format("row = {}, but {} rows of SPECD_DRAFT_ROWS are bound",
                                      input.row, row_limits_.draft_rows));
  }
  if (input.mask_row < -1 ||
      (input.mask_row >= 0 && static_cast<uint64_t>(input.mask_row) >= row_limits_.mask_rows)) {
    return Invalid("mask_row",
                   fmt::format("mask_row = {}, but {} rows of SPECD_GRAMMAR_MASK are bound; -1 is "
                               "unconstrained",
                               input.mask_row, row_limits_.mask_rows));
  }
  const auto max_draft = static_cast<int64_t>(options_.limits.max_draft);
  if (input.num_prefix < 0 || input.num_prefix >= max_draft) {
    return Invalid("num_prefix", fmt::format("num_prefix = {} is outside 0 .. {} (max_draft of "
                                             "specd_open, less the token to be drawn)",
                                             input.num_prefix, max_draft - 1));
  }
  if (input.sampling > DraftSampling::kTopK) {
    return Invalid("sampling", fmt::format("sampling = {} is unknown; use "
                                           "SPECD_WITH_REPLACEMENT (0), SPECD_WITHOUT_REPLACEMENT "
                                           "(1) or SPECD_TOP_K_CHILDREN (2)",
                                           static_cast<uint32_t>(input.sampling)));
  }
  if (input.num_children < 1 || input.num_children > kSamplesMax) {
    return Invalid("num_children", fmt::format("num_children = {} is outside 1 .. {}",
                                               input.num_children, kSamplesMax));
  }
  return absl::OkStatus();
}

absl::Status Session::CheckScoreInput(const ScoreInput& input) {
  const auto num_ids_max = static_cast<int64_t>(options_.limits.max_draft) + 1;
  if (input.num_ids < 1 || input.num_ids > num_ids_max) {
    return Invalid("num_ids", fmt::format("num_ids = {} is outside 1 .. {} (max_draft + 1)",
                                          input.num_ids, num_ids_max));
  }
  for (int32_t i = 0; i < input.num_ids; ++i) {
    if (input.rows[i] >= row_limits_.target_rows) {
      return Invalid("rows",
                     fmt::format("rows[{}] = {}, but {} rows of SPECD_TARGET_ROWS are bound", i,
                                 input.rows[i], row_limits_.target_rows));
    }
    if (input.ids[i] < 0 || static_cast<uint32_t>(input.ids[i]) >= options_.limits.vocab_size) {
      return Invalid("ids", fmt::format("ids[{}] = {} is outside 0 .. {}", i, input.ids[i],
                                        options_.limits.vocab_size - 1));
    }
  }
  const ScoreRequest& request = input.request;
  if (request.num_chosen > static_cast<int32_t>(kLogprobTokenIdsMax)) {
    return Invalid("chosen_ids", fmt::format("chosen_ids has {} ids, 0 .. {} are allowed",
                                             request.num_chosen, kLogprobTokenIdsMax));
  }
  for (int32_t i = 0; i < request.num_chosen; ++i) {
    if (request.chosen[i] < 0 ||
        static_cast<uint32_t>(request.chosen[i]) >= options_.limits.vocab_size) {
      return Invalid("chosen_ids", fmt::format("chosen_ids[{}] = {} is outside 0 .. {}", i,
                                               request.chosen[i], options_.limits.vocab_size - 1));
    }
  }
  // Without a sequence there are no steps to be taken.
  if (request.mode != ScoreMode::kRawLogprob && request.mode != ScoreMode::kRawLogit) {
    return Invalid("mode", fmt::format("mode = {} needs a sequence; use SPECD_RAW_LOGPROB (0) or "
                                       "SPECD_RAW_LOGIT (2)",
                                       static_cast<uint32_t>(request.mode)));
  }
  if (request.num_top < 0 || request.num_top > kLogprobsMax) {
    return Invalid("num_top",
                   fmt::format("num_top = {} is outside 0 .. {}", request.num_top, kLogprobsMax));
  }
  if (static_cast<uint32_t>(NumScores(request)) > options_.limits.max_scores) {
    return Invalid("num_top",
                   fmt::format("num_top = {} and {} chosen_ids are {} scores for each id, but "
                               "max_scores_per_token = {}; raise it in specd_options, or ask for "
                               "fewer",
                               request.num_top, request.num_chosen, NumScores(request),
                               options_.limits.max_scores));
  }
  return absl::OkStatus();
}

std::span<const InjectedCoin> Session::CoinsOf(SequenceHandle sequence) {
  if (verifier_->Find(sequence) == nullptr) return {};
  return streams_[SlotOf(sequence)].coins;
}

void Session::AnswerCall() {
  absl::Status status;
  switch (submission_.kind()) {
    case SubmissionKind::kRound:
      break;
    case SubmissionKind::kSampleDraft:
      status = SampleDraft();
      break;
    case SubmissionKind::kScore:
      status = Score();
      break;
    case SubmissionKind::kSetCoins:
      status = SetCoins(submission_.coins_call());
      break;
  }
  const auto done_ns = static_cast<uint64_t>(options_.clock->NowNs());
  if (!status.ok()) {
    channel_.Refuse(submission_, status, done_ns);
  } else if (submission_.kind() == SubmissionKind::kSampleDraft) {
    const size_t count = submission_.children_calls().size();
    channel_.Complete(submission_, std::span<const ChildrenAnswer>(children_.data(), count),
                      done_ns);
  } else {
    const size_t count = submission_.score_calls().size();
    channel_.Complete(submission_, std::span<const SequenceResult>(answers_.data(), count),
                      done_ns);
  }
}

absl::Status Session::SampleDraft() {
  const std::span<const ChildrenCall> calls = submission_.children_calls();
  for (size_t i = 0; i < calls.size(); ++i) {
    const ChildrenCall& call = calls[i];
    DraftInput& input = draft_inputs_[i];
    input = {};
    input.sequence = call.sequence;
    input.row = call.row;
    input.mask_row = call.mask_row;
    input.prefix = call.prefix;
    input.num_prefix = Signed(call.num_prefix);
    input.sampling = static_cast<DraftSampling>(call.sampling);
    input.num_children = Signed(call.num_children);
    input.first_node = call.first_node;
    if (absl::Status status = CheckDraftInput(input); !status.ok()) return status;
    const std::span<const InjectedCoin> coins = CoinsOf(input.sequence);
    input.coins = coins.data();
    input.num_coins = static_cast<int32_t>(coins.size());
  }
  const std::span<DraftResult> results(draft_results_.data(), calls.size());
  verifier_->SampleDraft({draft_inputs_.data(), calls.size()}, results);
  for (size_t i = 0; i < results.size(); ++i) {
    NoteFailure(results[i].status);
    children_[i] = {results[i].sequence, static_cast<uint32_t>(results[i].status),
                    results[i].children};
  }
  return Judge<DraftResult>(results);
}

absl::Status Session::Score() {
  const std::span<const ScoreCall> calls = submission_.score_calls();
  for (size_t i = 0; i < calls.size(); ++i) {
    const ScoreCall& call = calls[i];
    score_inputs_[i] = {call.rows,
                        call.ids,
                        Signed(call.num_ids),
                        {true, static_cast<ScoreMode>(call.mode), Signed(call.num_top), call.chosen,
                         Signed(call.num_chosen)}};
    if (absl::Status status = CheckScoreInput(score_inputs_[i]); !status.ok()) return status;
  }
  const std::span<ScoreResult> results(score_results_.data(), calls.size());
  verifier_->Score({score_inputs_.data(), calls.size()}, results);
  for (size_t i = 0; i < results.size(); ++i) {
    NoteFailure(results[i].status);
    SequenceResult& answer = answers_[i];
    answer = {};
    answer.status = static_cast<uint32_t>(results[i].status);
    answer.num_kept = static_cast<uint32_t>(results[i].num_scored);
    answer.tokens = calls[i].ids;
    answer.scores_per_token = static_cast<uint32_t>(results[i].scores_per_token);
    answer.scores = results[i].scores;
  }
  return Judge<ScoreResult>(results);
}

absl::Status Session::SetCoins(const CoinsCall& call) {
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
  if (verifier_->Find(call.sequence) == nullptr) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     fmt::format("sequence {:#x} is not open", call.sequence));
  }
  std::vector<InjectedCoin>& coins = streams_[SlotOf(call.sequence)].coins;
  const size_t others = num_coins_ - coins.size();
  if (others + call.coins.size() > kCoinsMax) {
    return MakeError(SPECD_ERROR_EXHAUSTED, "num_coins",
                     fmt::format("num_coins = {}, and {} are set for other open sequences; a "
                                 "session may have {}: close sequences, or set none for them",
                                 call.coins.size(), others, kCoinsMax));
  }
  std::vector<InjectedCoin> injected;
  injected.reserve(call.coins.size());
  for (const CoinRecord& coin : call.coins) {
    injected.push_back(
        {{coin.position, coin.round_base, coin.node, static_cast<Purpose>(coin.purpose)},
         coin.value});
  }
  coins = std::move(injected);
  num_coins_ = others + call.coins.size();
  return absl::OkStatus();
}

}  // namespace specd
