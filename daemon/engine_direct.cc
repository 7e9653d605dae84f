// Engine, the calls that embedded mode answers at once: draft sampling and scores.
#include <fmt/format.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "daemon/engine.h"
#include "daemon/session.h"
#include "ipc/error.h"

namespace specd {
namespace {

static_assert(sizeof(specd_draft_child) == sizeof(DraftSample) &&
                  offsetof(specd_draft_child, count) == offsetof(DraftSample, count) &&
                  offsetof(specd_draft_child, weight) == offsetof(DraftSample, weight) &&
                  offsetof(specd_draft_child, mass) == offsetof(DraftSample, mass),
              "children are handed on as they are");

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
  if (request.chosen_ids.count > kLogprobTokenIdsMax ||
      (request.chosen_ids.count > 0 && request.chosen_ids.items == nullptr)) {
    return Invalid(
        "chosen_ids",
        fmt::format("requests[{}].chosen_ids has {} ids{}, 0 .. {} are allowed", index,
                    request.chosen_ids.count, request.chosen_ids.items == nullptr ? " at NULL" : "",
                    kLogprobTokenIdsMax));
  }
  return absl::OkStatus();
}

// A count that does not fit is refused by the session as a count out of range.
int32_t Signed(uint32_t value) {
  return value > INT32_MAX ? INT32_MAX : static_cast<int32_t>(value);
}

}  // namespace

absl::StatusOr<Session*> Engine::DirectSession(const char* call) const {
  if (link_->session() == nullptr) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "uri",
                     fmt::format("{} is answered in this process only; open a second engine with "
                                 "embedded:cpu for it",
                                 call));
  }
  if (channel_.rounds_in_flight() != 0) {
    return MakeError(SPECD_ERROR_STATE, "",
                     fmt::format("{} rounds are in flight; poll for their completions first",
                                 channel_.rounds_in_flight()));
  }
  return link_->session();
}

absl::Status Engine::SampleDraft(std::span<const specd_draft_request> requests,
                                 specd_draft_children* results) {
  absl::StatusOr<Session*> session = DirectSession("specd_sample_draft");
  if (!session.ok()) return session.status();
  std::vector<DraftInput> inputs;
  for (size_t i = 0; i < requests.size(); ++i) {
    const specd_draft_request& request = requests[i];
    if (absl::Status status = CheckRequest(i, request); !status.ok()) return status;
    DraftInput input;
    input.sequence = request.sequence;
    input.row = request.row;
    input.mask_row = request.mask_row;
    input.prefix = request.prefix;
    input.num_prefix = Signed(request.num_prefix);
    input.sampling = static_cast<DraftSampling>(request.sampling);
    input.num_children = Signed(request.num_children);
    input.first_node = request.first_node == 0 ? request.num_prefix + 1 : request.first_node;
    inputs.push_back(input);
  }
  std::vector<DraftResult> answers(inputs.size());
  if (absl::Status status = (*session)->SampleDraft(inputs, answers); !status.ok()) return status;
  for (size_t i = 0; i < answers.size(); ++i) {
    results[i] = {answers[i].sequence, static_cast<uint32_t>(answers[i].status),
                  static_cast<uint32_t>(answers[i].children.size()),
                  reinterpret_cast<const specd_draft_child*>(answers[i].children.data())};
  }
  return absl::OkStatus();
}

absl::Status Engine::Score(std::span<const specd_score_request> requests,
                           specd_score_result* results) {
  absl::StatusOr<Session*> session = DirectSession("specd_score");
  if (!session.ok()) return session.status();
  std::vector<ScoreInput> inputs;
  for (size_t i = 0; i < requests.size(); ++i) {
    const specd_score_request& request = requests[i];
    if (absl::Status status = CheckRequest(i, request); !status.ok()) return status;
    inputs.push_back({request.rows,
                      request.ids,
                      Signed(request.num_ids),
                      {true, static_cast<ScoreMode>(request.mode), Signed(request.num_top),
                       request.chosen_ids.items, static_cast<int32_t>(request.chosen_ids.count)}});
  }
  std::vector<ScoreResult> answers(inputs.size());
  if (absl::Status status = (*session)->Score(inputs, answers); !status.ok()) return status;
  for (size_t i = 0; i < answers.size(); ++i) {
    results[i] = {static_cast<uint32_t>(answers[i].status),
                  static_cast<uint32_t>(answers[i].num_scored),
                  static_cast<uint32_t>(answers[i].scores_per_token), 0,
                  reinterpret_cast<const specd_token_score*>(answers[i].scores)};
  }
  return absl::OkStatus();
}

absl::Status Engine::SetCoins(specd_sequence sequence, std::span<const specd_coin> coins) {
  absl::StatusOr<Session*> session = DirectSession("specd_set_coins");
  if (!session.ok()) return session.status();
  std::vector<InjectedCoin> injected;
  for (size_t i = 0; i < coins.size(); ++i) {
    const specd_coin& coin = coins[i];
    if (coin.purpose < SPECD_COIN_SAMPLE || coin.purpose > SPECD_COIN_RESIDUAL) {
      return Invalid("purpose", fmt::format("coins[{}].purpose = {} is no SPECD_COIN_... (1 .. 4)",
                                            i, coin.purpose));
    }
    injected.push_back(
        {{coin.position, coin.round_base, coin.node, static_cast<Purpose>(coin.purpose)},
         coin.value});
  }
  return (*session)->SetCoins(sequence, std::move(injected));
}

}  // namespace specd
