// The classes and functions here put the results of a round where the caller of libspecd reads
// them, for EngineRounds.
//
// CompletionWriter makes specd_result structs for specd_poll. CheckRoom and WriteResults fill the
// arrays of a specd_batch_results; CheckRoom comes first, while the round can still be left where
// it is.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ipc/base/limits.h"
#include "ipc/include/specd/specd.h"
#include "ipc/segment/engine_channel.h"

namespace specd {

class CompletionWriter {
 public:
  // The results are valid until the next call. REQUIRES: the completion's sizes are valid.
  void Write(const CompletionView& view, specd_completion* completion);

 private:
  std::vector<uint64_t> results_;  // bytes of specd_result, of the caller's size
};

// OK if the arrays have room for the results of a round of this size.
absl::Status CheckRoom(const specd_batch_results& results, const RoundSize& round,
                       const SessionLimits& limits);

// Refuses an answer that is larger than its round, which only a broken daemon gives. REQUIRES:
// CheckRoom accepted the arrays for this round.
absl::Status WriteResults(const CompletionView& view, specd_batch_results* results);

}  // namespace specd
