// RunStreamEngine runs CudaStreamEngine as a program for tests in which its CUDA stream and the
// daemon meet, killed, stopped and late.
//
// The program writes its steps on standard output, and a line on standard input begins the next
// step. An error ends the program with status 1.
//
//   rounds N   N rounds, ring_depth in flight, without a wait of the CPU
//   pair N     the same for two engines of one process, each on its own CUDA stream
//   endless    the same until there is a line, with a step every few rounds
//   wait       a round whose daemon is killed while the CUDA stream waits
//   late       a daemon that is stopped, and comes back after the deadline
//   stopped    rounds until there is a line, while the daemon is stopped in the middle of some;
//              after each abort there is a step, and the daemon has to continue
//   held       a round whose rows are not ready before there is a line
//   time N     the time of N rounds, one at a time, as JSON
#pragma once

#include <string>

#include "tests/support/cuda_stream_engine.h"

namespace specd {

// Returns the exit status: 0, or 2 for an unknown mode.
int RunStreamEngine(EngineGpu* gpu, const CudaStreamEngine::Options& options,
                    const std::string& mode, uint64_t num_rounds);

}  // namespace specd
