// RecordingTeam is a WarpTeam that keeps the integers of its last draw, for rounds that are
// recorded (record.h).
//
// Only the launch that records uses it, so no other launch pays for it.
#pragma once

#include "kernels/warps/warp_team.h"

namespace specd {

template <typename Thread>
class RecordingTeam : public WarpTeam<Thread> {
 public:
  using WarpTeam<Thread>::WarpTeam;
  // The member that makes this team KeepsDraws (team.h). All threads of the team hold the same
  // integers.
  DrawFacts draw;
};

}  // namespace specd
