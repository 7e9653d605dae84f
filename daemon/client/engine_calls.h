// EngineCalls makes an engine's calls: draft tokens, scores of given ids, coins, forced ids. A call
// waits for its answer. REQUIRES: no round is in flight. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client/engine_rounds.h"
#include "ipc/include/specd/specd.h"

namespace specd {

class EngineCalls {
 public:
  // The pointers must outlive this object. A call waits timeout_ms for its answer.
  EngineCalls(EngineLink* link, EngineRounds* rounds, const SessionLimits& limits, int timeout_ms)
      : link_(*link), rounds_(*rounds), limits_(limits), timeout_ms_(timeout_ms) {}

  absl::Status SampleDraft(const specd_draft_request* requests, uint32_t num_requests,
                           specd_draft_children* results);
  absl::Status Score(const specd_score_request* requests, uint32_t num_requests,
                     specd_score_result* results);
  absl::Status FindForced(specd_sequence sequence, std::span<const int32_t> prefix,
                          std::span<int32_t> ids, uint32_t* num_ids);
  absl::Status SetCoins(specd_sequence sequence, std::span<const specd_coin> coins);

 private:
  EngineChannel& channel() { return rounds_.channel(); }
  // OK if nothing is in flight and the daemon takes submissions; otherwise the reason.
  absl::Status CheckReady();
  absl::Status CheckCount(size_t num_requests) const;
  // Submits a call and waits for its answer.
  template <class Call>
  absl::StatusOr<CompletionView> Answer(const Call& call);

  EngineLink& link_;
  EngineRounds& rounds_;
  const SessionLimits limits_;
  const int timeout_ms_;
  std::vector<DraftInput> draft_inputs_;
  std::vector<ScoreInput> score_inputs_;
};

}  // namespace specd
