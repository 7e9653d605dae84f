// Engine, the calls: draft sampling, scores, coins. Each waits for its answer.
#include <fmt/format.h>

#include <cstddef>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/client/engine.h"
#include "ipc/base/error.h"

namespace specd {
namespace {

static_assert(sizeof(specd_draft_child) == sizeof(DraftSample) &&
                  offsetof(specd_draft_child, count) == offsetof(DraftSample, count) &&
                  offsetof(specd_draft_child, weight) == offsetof(DraftSample, weight) &&
                  offsetof(specd_draft_child, mass) == offsetof(DraftSample, mass),
              "children are handed on as they are");

static_assert(sizeof(specd_coin) == sizeof(CoinRecord) &&
                  offsetof(specd_coin, purpose) == offsetof(CoinRecord, purpose) &&
                  offsetof(specd_coin, value) == offsetof(CoinRecord, value),
              "coins are handed on as they are");

absl::Status Invalid(std::string_view field, std::string_view text) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field, text);
}

absl::Status CheckRequest(size_t index, const specd_draft_request& request) {
  if (request.num_prefix > 0 && request.prefix == nullptr) {
    return Invalid("prefix", fmt::format("requests[{}].prefix is NULL but num_prefix = {}", index,
                                         request.num_prefix));
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(size_t index, const specd_score_request& request) {
  if (request.reserved != 0) {
    return Invalid("reserved", fmt::format("requests[{}].reserved must be 0", index));
  }
  if (request.rows == nullptr || request.ids == nullptr) {
    return Invalid(
        request.rows == nullptr ? "rows" : "ids",
        fmt::format("requests[{}].{} is NULL", index, request.rows == nullptr ? "rows" : "ids"));
  }
  if (request.chosen_ids.count > kCallChosenMax ||
      (request.chosen_ids.count > 0 && request.chosen_ids.items == nullptr)) {
    return Invalid(
        "chosen_ids",
        fmt::format("requests[{}].chosen_ids has {} ids{}, 0 .. {} are allowed", index,
                    request.chosen_ids.count, request.chosen_ids.items == nullptr ? " at NULL" : "",
                    kCallChosenMax));
  }
  return absl::OkStatus();
}

absl::Status WrongCount() {
  return MakeError(SPECD_ERROR_INTERNAL, "", "the daemon answered another number of requests");
}

}  // namespace

absl::Status Engine::CheckReady() {
  // A call that was given up may have been answered since.
  CompletionView late;
  if (channel_.call_in_flight()) {
    channel_.Poll(&late);
  } else {
    channel_.FreeSlots();
  }
  // Or it never will be: whoever is told to try again later must not try for ever.
  if (channel_.call_in_flight() &&
      (channel_.fault() != ChannelFault::kNone ||
       channel_.daemon_state() == DaemonState::kStopped || link_->PeerGone())) {
    return WhyNoCompletion();
  }
  if (channel_.in_flight()) {
    return MakeError(
        SPECD_ERROR_STATE, "",
        channel_.call_in_flight()
            ? std::string("a call that was given up is not answered yet; try again later")
            : fmt::format("{} rounds are in flight; poll for their completions first",
                          channel_.rounds_in_flight()));
  }
  if (channel_.daemon_state() != DaemonState::kRunning) return WhyNoCompletion();
  return absl::OkStatus();
}

absl::Status Engine::CheckCount(size_t num_requests) const {
  const uint32_t max_batch = segment_->limits().max_batch;
  if (num_requests >= 1 && num_requests <= max_batch) return absl::OkStatus();
  return Invalid("num_requests", fmt::format("num_requests = {} is outside 1 .. {} (max_batch of "
                                             "specd_open)",
                                             num_requests, max_batch));
}

template <class Call>
absl::StatusOr<CompletionView> Engine::Answer(const Call& call) {
  if (channel_.Call(call, static_cast<uint64_t>(Clock::Real()->NowNs())) != PushResult::kOk) {
    return WhyNoCompletion();
  }
  CompletionView view;
  const absl::StatusOr<bool> answered = Await(timeout_ms_, &view);
  if (!answered.ok()) return answered.status();
  if (!*answered) {
    return MakeError(SPECD_ERROR_DISCONNECTED, "timeout_ms",
                     fmt::format("the daemon did not answer within {} ms; it may be stuck, or "
                                 "timeout_ms too short",
                                 timeout_ms_));
  }
  if (!view.refusal.ok()) return view.refusal;
  return view;
}

absl::Status Engine::SampleDraft(std::span<const specd_draft_request> requests,
                                 specd_draft_children* results) {
  if (absl::Status status = CheckReady(); !status.ok()) return status;
  if (absl::Status status = CheckCount(requests.size()); !status.ok()) return status;
  children_calls_.clear();
  for (size_t i = 0; i < requests.size(); ++i) {
    const specd_draft_request& request = requests[i];
    if (absl::Status status = CheckRequest(i, request); !status.ok()) return status;
    children_calls_.push_back(
        {request.sequence, request.row, request.mask_row, request.prefix, request.num_prefix,
         request.sampling, request.num_children,
         request.first_node == 0 ? request.num_prefix + 1 : request.first_node});
  }
  const absl::StatusOr<CompletionView> answer =
      Answer(std::span<const ChildrenCall>(children_calls_));
  if (!answer.ok()) return answer.status();
  if (answer->children.size() != requests.size()) return WrongCount();
  for (size_t i = 0; i < requests.size(); ++i) {
    const ChildrenAnswer& from = answer->children[i];
    results[i] = {from.sequence, from.status, static_cast<uint32_t>(from.children.size()),
                  reinterpret_cast<const specd_draft_child*>(from.children.data())};
  }
  return absl::OkStatus();
}

absl::Status Engine::Score(std::span<const specd_score_request> requests,
                           specd_score_result* results) {
  if (absl::Status status = CheckReady(); !status.ok()) return status;
  if (absl::Status status = CheckCount(requests.size()); !status.ok()) return status;
  score_calls_.clear();
  for (size_t i = 0; i < requests.size(); ++i) {
    const specd_score_request& request = requests[i];
    if (absl::Status status = CheckRequest(i, request); !status.ok()) return status;
    score_calls_.push_back({request.rows, request.ids, request.num_ids, request.mode,
                            request.num_top, request.chosen_ids.items,
                            static_cast<uint32_t>(request.chosen_ids.count)});
  }
  const absl::StatusOr<CompletionView> answer = Answer(std::span<const ScoreCall>(score_calls_));
  if (!answer.ok()) return answer.status();
  if (answer->results.size() != requests.size()) return WrongCount();
  for (size_t i = 0; i < requests.size(); ++i) {
    const SequenceResult& from = answer->results[i];
    results[i] = {from.status, from.num_kept, from.scores_per_token, 0,
                  reinterpret_cast<const specd_token_score*>(from.scores)};
  }
  return absl::OkStatus();
}

absl::Status Engine::SetCoins(specd_sequence sequence, std::span<const specd_coin> coins) {
  if (absl::Status status = CheckReady(); !status.ok()) return status;
  if (coins.size() > kCallCoinsMax) {
    return Invalid("num_coins",
                   fmt::format("num_coins = {} is outside 0 .. {}", coins.size(), kCallCoinsMax));
  }
  const CoinsCall call{sequence, {reinterpret_cast<const CoinRecord*>(coins.data()), coins.size()}};
  return Answer(call).status();
}

}  // namespace specd
