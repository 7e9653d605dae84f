// StreamEngine as a program: what its stream and the daemon do to each other, killed, stopped and
// late. Steps are told on standard output, and the next one is begun by a line on standard input.
// What is wrong ends it with status 1.
//
//   rounds N   N rounds, ring_depth in flight, without a wait of the CPU
//   pair N     the same for two engines of one process, each on its own stream
//   endless    the same until there is a line, with a step every few rounds
//   wait       a round whose daemon is killed while the stream waits
//   late       a daemon that is stopped, and comes back after the deadline
//   stopped    rounds until there is a line, while the daemon is stopped in the middle of some;
//   after
//              each abort there is a step, and the daemon has to go on
//   held       a round whose rows are not ready before there is a line
//   time N     what N rounds take, one at a time, as JSON
#pragma once

#include <string>

#include "tests/support/stream_engine.h"

namespace specd {

// Returns the exit status: 0, or 2 for a mode that is none of the above.
int RunStreamEngine(GpuContext* gpu, const StreamEngine::Options& options, const std::string& mode,
                    uint64_t num_rounds);

}  // namespace specd
