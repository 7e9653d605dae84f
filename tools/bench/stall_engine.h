// StallEngine is an engine's end of a session, for StallScene.
//
// All rows of its rounds are the same, and so are all draft tokens: the id that every coin draws.
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/session.h"
#include "ipc/segment/engine_channel.h"

namespace specd::bench {

class StallEngine {
 public:
  static absl::StatusOr<std::unique_ptr<StallEngine>> Create(std::shared_ptr<Session> session,
                                                             TokenId best);

  const std::shared_ptr<Session>& session() const { return session_; }

  // Opens another sequence of the next rounds.
  absl::Status Open(const std::string& name, const SequenceParams& params,
                    const SequenceHistory& history = {});
  absl::Status CloseAll();

  absl::Status Submit();
  bool Poll();
  // Runs a round of one sequence. `is_whole`: all its drafts must stand. Returns the status.
  absl::StatusOr<RoundStatus> RunRound(bool is_whole);

 private:
  StallEngine(const SessionLimits& limits, TokenId best)
      : drafts_(limits.max_draft, best), rows_(limits.max_draft + 1, 0) {}

  const std::vector<TokenId> drafts_;
  const std::vector<uint32_t> rows_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<EngineChannel> channel_;
  std::vector<SequenceInput> inputs_;
  uint64_t round_id_ = 0;
};

}  // namespace specd::bench
