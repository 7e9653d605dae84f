#include "daemon/client/engine_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "daemon/base/clock.h"
#include "daemon/client/struct_array.h"
#include "ipc/base/error.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {
namespace {

static_assert(sizeof(specd_draft_child) == sizeof(DraftSample) &&
                  offsetof(specd_draft_child, count) == offsetof(DraftSample, count) &&
                  offsetof(specd_draft_child, weight) == offsetof(DraftSample, weight) &&
                  offsetof(specd_draft_child, kind) == offsetof(DraftSample, kind) &&
                  offsetof(specd_draft_child, mass) == offsetof(DraftSample, mass),
              "children are handed on as they are");

static_assert(sizeof(specd_coin) == sizeof(CoinRecord) &&
                  offsetof(specd_coin, purpose) == offsetof(CoinRecord, purpose) &&
                  offsetof(specd_coin, value) == offsetof(CoinRecord, value),
              "coins are handed on as they are");

absl::Status CheckRequest(size_t index, const specd_draft_request& request) {
  if (request.num_prefix > 0 && request.prefix == nullptr) {
    return Invalid("prefix", fmt::format("requests[{}].prefix is NULL but num_prefix = {}", index,
                                         request.num_prefix));
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(size_t index, const specd_score_request& request) {
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

// Turns a number that is too large for its record into a negative one, which is refused as out of
// range.
int32_t Signed(uint32_t value) {
  return value > INT32_MAX ? INT32_MAX : static_cast<int32_t>(value);
}

}  // namespace

absl::Status EngineCalls::CheckReady() {
  // A call that was given up may have been answered meanwhile.
  CompletionView late;
  if (channel().call_in_flight()) {
    channel().Poll(&late);
  } else {
    channel().FreeEntries();
  }
  // The answer may also never come. A caller that is told to try again later must not try forever.
  if (channel().call_in_flight() &&
      (channel().fault() != ChannelFault::kNone ||
       channel().daemon_state() == DaemonState::kStopped || link_.PeerGone())) {
    const absl::Status back = rounds_.AwaitDaemonAfter(rounds_.WhyNoCompletion());
    if (!back.ok()) return back;
  }
  if (channel().in_flight()) {
    return MakeError(
        SPECD_ERROR_STATE, "",
        channel().call_in_flight()
            ? std::string("a call that was given up is not answered yet; try again later")
            : fmt::format("{} rounds are in flight; poll for their completions first",
                          channel().rounds_in_flight()));
  }
  return rounds_.AwaitDaemon();
}

absl::Status EngineCalls::CheckCount(size_t num_requests) const {
  const uint32_t max_batch = limits_.max_batch;
  if (num_requests >= 1 && num_requests <= max_batch) return absl::OkStatus();
  return Invalid("num_requests", fmt::format("num_requests = {} is outside 1 .. {} (max_batch of "
                                             "specd_open)",
                                             num_requests, max_batch));
}

template <class Call>
absl::StatusOr<CompletionView> EngineCalls::Answer(const Call& call) {
  if (channel().Call(call, static_cast<uint64_t>(Clock::Real()->NowNs())) != PushResult::kOk) {
    return rounds_.WhyNoCompletion();
  }
  CompletionView view;
  // Embedded, the work is done here, however long it takes.
  const absl::StatusOr<bool> answered =
      rounds_.Await(link_.is_embedded() ? -1 : timeout_ms_, &view);
  if (!answered.ok()) return answered.status();
  if (!*answered) {
    return MakeError(
        SPECD_ERROR_TIMEOUT, "timeout_ms",
        fmt::format("the daemon did not answer within {} ms; it may be busy or stuck, or "
                    "timeout_ms too short",
                    timeout_ms_));
  }
  if (!view.refusal.ok()) return view.refusal;
  return view;
}

absl::Status EngineCalls::SampleDraft(const specd_draft_request* requests, uint32_t num_requests,
                                      specd_draft_children* results) {
  if (absl::Status status = CheckReady(); !status.ok()) return status;
  if (absl::Status status = CheckCount(num_requests); !status.ok()) return status;
  InputArray<specd_draft_request> in;
  OutputArray<specd_draft_children> out;
  if (absl::Status s = in.Check("requests", requests, num_requests, &in); !s.ok()) return s;
  if (absl::Status s = out.Check("results", results, num_requests, &out); !s.ok()) return s;
  draft_inputs_.clear();
  for (uint32_t i = 0; i < num_requests; ++i) {
    const specd_draft_request& request = in[i];
    if (absl::Status status = CheckRequest(i, request); !status.ok()) return status;
    draft_inputs_.push_back(
        {.sequence = request.sequence,
         .row = request.row,
         .mask_row = request.mask_row,
         .prefix = request.prefix,
         .num_prefix = Signed(request.num_prefix),
         .sampling = static_cast<DraftSampling>(request.sampling),
         .num_children = Signed(request.num_children),
         .first_node = request.first_node == 0 ? request.num_prefix + 1 : request.first_node});
  }
  const absl::StatusOr<CompletionView> answer = Answer(std::span<const DraftInput>(draft_inputs_));
  if (!answer.ok()) return answer.status();
  if (answer->children.size() != num_requests) return WrongCount();
  for (uint32_t i = 0; i < num_requests; ++i) {
    const DraftResult& from = answer->children[i];
    out.Put(i, {.struct_size = 0,
                .detail = static_cast<uint32_t>(from.refusal),
                .sequence = from.sequence,
                .status = static_cast<uint32_t>(from.status),
                .num_children = static_cast<uint32_t>(from.children.size()),
                .children = reinterpret_cast<const specd_draft_child*>(from.children.data())});
  }
  return absl::OkStatus();
}

absl::Status EngineCalls::Score(const specd_score_request* requests, uint32_t num_requests,
                                specd_score_result* results) {
  if (absl::Status status = CheckReady(); !status.ok()) return status;
  if (absl::Status status = CheckCount(num_requests); !status.ok()) return status;
  InputArray<specd_score_request> in;
  OutputArray<specd_score_result> out;
  if (absl::Status s = in.Check("requests", requests, num_requests, &in); !s.ok()) return s;
  if (absl::Status s = out.Check("results", results, num_requests, &out); !s.ok()) return s;
  score_inputs_.clear();
  for (uint32_t i = 0; i < num_requests; ++i) {
    const specd_score_request& request = in[i];
    if (absl::Status status = CheckRequest(i, request); !status.ok()) return status;
    score_inputs_.push_back(
        {.rows = request.rows,
         .ids = request.ids,
         .num_ids = Signed(request.num_ids),
         .request = {.enabled = true,
                     .mode = static_cast<ScoreMode>(request.mode),
                     .num_top = Signed(request.num_top),
                     .chosen = request.chosen_ids.items,
                     .num_chosen = static_cast<int32_t>(request.chosen_ids.count)}});
  }
  const absl::StatusOr<CompletionView> answer = Answer(std::span<const ScoreInput>(score_inputs_));
  if (!answer.ok()) return answer.status();
  if (answer->results.size() != num_requests) return WrongCount();
  for (uint32_t i = 0; i < num_requests; ++i) {
    const SequenceResult& from = answer->results[i];
    out.Put(i, {.struct_size = 0,
                .status = static_cast<uint32_t>(from.status),
                .num_scored = from.num_kept,
                .scores_per_token = from.scores_per_token,
                .scores = reinterpret_cast<const specd_token_score*>(from.scores),
                .detail = static_cast<uint32_t>(from.refusal),
                .reserved = 0});
  }
  return absl::OkStatus();
}

absl::Status EngineCalls::FindForced(specd_sequence sequence, std::span<const int32_t> prefix,
                                     std::span<int32_t> ids, uint32_t* num_ids) {
  if (absl::Status status = CheckReady(); !status.ok()) return status;
  if (prefix.size() > limits_.path_max()) {
    return Invalid("num_prefix", fmt::format("num_prefix = {} is outside 0 .. {} (max_path of "
                                             "specd_open)",
                                             prefix.size(), limits_.path_max()));
  }
  if (ids.empty()) return Invalid("max_ids", "max_ids = 0; give room for one id or more");
  const auto room = std::min<size_t>(ids.size(), limits_.max_output());
  const ForcedInput input = {.sequence = sequence,
                             .prefix = prefix.data(),
                             .num_prefix = static_cast<int32_t>(prefix.size()),
                             .num_ids_max = static_cast<int32_t>(room)};
  const absl::StatusOr<CompletionView> answer = Answer(std::span<const ForcedInput>(&input, 1));
  if (!answer.ok()) return answer.status();
  if (answer->results.size() != 1 || answer->results[0].num_kept > room) return WrongCount();
  const SequenceResult& found = answer->results[0];
  if (found.status == RoundStatus::kUnknownSequence) {
    return MakeError(SPECD_ERROR_NOT_FOUND, "sequence",
                     fmt::format("sequence {:#x} is not open", sequence));
  }
  if (found.status == RoundStatus::kNotReady) {
    return MakeError(SPECD_ERROR_STATE, "sequence", WhyPending(sequence));
  }
  std::copy_n(found.tokens, found.num_kept, ids.begin());
  *num_ids = found.num_kept;
  return absl::OkStatus();
}

absl::Status EngineCalls::SetCoins(specd_sequence sequence, std::span<const specd_coin> coins) {
  if (absl::Status status = CheckReady(); !status.ok()) return status;
  if (coins.size() > kCallCoinsMax) {
    return Invalid("num_coins",
                   fmt::format("num_coins = {} is outside 0 .. {}", coins.size(), kCallCoinsMax));
  }
  const CoinsCall call{sequence, {reinterpret_cast<const CoinRecord*>(coins.data()), coins.size()}};
  return Answer(call).status();
}

}  // namespace specd
