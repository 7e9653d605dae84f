// SequenceFacts tells an operator about one open sequence, and SessionClient about its engine.
//
// Sessions fill them for OperatorService. Plain data.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/core/sequence_round.h"
#include "speculative/sequence/sequence_table.h"

namespace specd {

// The engine of a session, as the kernel and its Hello name it.
struct SessionClient {
  uint32_t uid = 0;
  pid_t pid = 0;  // 0: the kernel cannot see the process
  std::string name = {};
};

struct SequenceFacts {
  SequenceHandle sequence = 0;
  uint64_t stream = 0;  // 0: it has not begun
  std::string request_id = {};
  SequencePhase phase = SequencePhase::kOpen;
  FinishReason finish_reason = FinishReason::kNone;
  VerifyMethod method = VerifyMethod::kAuto;
  uint64_t seed = 0;
  uint64_t tokens = 0;
  uint64_t rounds = 0;    // that kept tokens or ended it
  uint64_t accepted = 0;  // draft tokens
  int64_t opened_ns = 0;  // by the session's clock
  // Those that were changed, a line each; null: they are not known yet.
  std::shared_ptr<const std::string> params = nullptr;
};

// The sequences that are looked for: all, or those of a request or a stream.
struct SequenceFilter {
  std::string_view request_id = {};
  uint64_t stream = 0;

  bool IsMet(std::string_view its_request_id, uint64_t its_stream) const {
    return (request_id.empty() || request_id == its_request_id) &&
           (stream == 0 || stream == its_stream);
  }
};

}  // namespace specd
