// CompletionWait waits for the answers of an engine's channel, for EngineRounds: it spins and
// sleeps beside a daemon, and does the work itself in embedded mode.
//
// One thread at a time.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client/adaptive_spin.h"
#include "daemon/client/engine_link.h"
#include "ipc/segment/engine_channel.h"

namespace specd {

// The pause between two looks at the daemon while an engine waits. The death of the daemon is
// noticed within this time. A look is one poll of the socket and costs nothing at this rate.
inline constexpr int kLookMs = 20;

class CompletionWait {
 public:
  // The link and the channel must outlive this object. `spin_us` is that of specd_options.
  CompletionWait(EngineLink* link, EngineChannel* channel, int32_t spin_us);

  // Whether the rounds in flight are staged. Meaningful while rounds are in flight.
  void SetStaged(bool are_staged) { are_staged_ = are_staged; }
  bool are_staged() const { return are_staged_; }

  // Takes the oldest completion of the present daemon; false if none came in time.
  absl::StatusOr<bool> Take(int timeout_ms, CompletionView* view);
  // Why no completion will come: the daemon is gone, ends, or has damaged the segment.
  absl::Status WhyNone() const;

 private:
  bool Wait(int timeout_ms);
  // Attached: looks for spin_ns before it sleeps.
  bool Sleep(int timeout_ms, int64_t spin_ns);
  // Embedded: does the work that there is. If rounds are staged, waits for their CUDA graph.
  bool Step(int timeout_ms);

  EngineLink& link_;
  EngineChannel& channel_;
  AdaptiveSpin spin_;
  int64_t waited_ns_ = 0;  // for the next answer, in waits that ended without it
  bool are_staged_ = false;
};

}  // namespace specd
