// Session, the calls that are answered at once: specd as the drafter's sampler, and scores.
#include <fmt/format.h>

#include <utility>

#include "daemon/session.h"
#include "ipc/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

absl::Status Invalid(std::string_view field, std::string_view text) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field, text);
}

absl::Status CheckCount(size_t count, const SessionLimits& limits) {
  if (count >= 1 && count <= limits.max_batch) return absl::OkStatus();
  return Invalid("num_requests", fmt::format("num_requests = {} is outside 1 .. {} (max_batch of "
                                             "specd_open)",
                                             count, limits.max_batch));
}

// What the verifier refused, if it refused anything: these calls change nothing, so a whole call
// can be refused and say why.
template <class Result>
absl::Status FirstRefusal(std::span<const Result> results) {
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

absl::Status Session::SetCoins(SequenceHandle sequence, std::vector<InjectedCoin> coins) {
  constexpr size_t kCoinsMax = 4096;
  if (coins.size() > kCoinsMax) {
    return Invalid("num_coins",
                   fmt::format("num_coins = {} is outside 0 .. {}", coins.size(), kCoinsMax));
  }
  for (size_t i = 0; i < coins.size(); ++i) {
    if (coins[i].coin >> kCoinBits == 0) continue;
    return Invalid("value",
                   fmt::format("coins[{}].value = {} is outside 0 .. 2^53 - 1", i, coins[i].coin));
  }
  MutexLock lock(&mutex_);
  if (verifier_->Find(sequence) == nullptr) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     fmt::format("sequence {:#x} is not open", sequence));
  }
  streams_[SlotOf(sequence)].coins = std::move(coins);
  return absl::OkStatus();
}

absl::Status Session::SampleDraft(std::span<const DraftInput> inputs,
                                  std::span<DraftResult> results) {
  if (absl::Status status = CheckCount(inputs.size(), options_.limits); !status.ok()) return status;
  MutexLock lock(&mutex_);
  std::vector<DraftInput> with_coins(inputs.begin(), inputs.end());
  for (DraftInput& input : with_coins) {
    if (absl::Status status = CheckDraftInput(input); !status.ok()) return status;
    const std::span<const InjectedCoin> coins = CoinsOf(input.sequence);
    input.coins = coins.data();
    input.num_coins = static_cast<int32_t>(coins.size());
  }
  verifier_->SampleDraft(with_coins, results);
  return FirstRefusal<DraftResult>(results);
}

absl::Status Session::Score(std::span<const ScoreInput> inputs, std::span<ScoreResult> results) {
  if (absl::Status status = CheckCount(inputs.size(), options_.limits); !status.ok()) return status;
  MutexLock lock(&mutex_);
  for (const ScoreInput& input : inputs) {
    if (absl::Status status = CheckScoreInput(input); !status.ok()) return status;
  }
  verifier_->Score(inputs, results);
  return FirstRefusal<ScoreResult>(results);
}

}  // namespace specd
