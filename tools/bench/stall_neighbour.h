// StallNeighbour is the work of a neighbour that opens or masks all day, on a thread of its own,
// for StallScene.
//
// Every constraint is new, so nothing of it has been compiled or masked before. Each opening has a
// thread of its own, as in OpeningThreads, because a long compile lowers its thread's priority.
// One thread calls the public functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "tools/bench/stall_engine.h"

namespace specd::bench {

class StallNeighbour {
 public:
  // Opens sequences whose constraints use up the budget of a compile. The engine outlives it.
  static std::unique_ptr<StallNeighbour> Openings(StallEngine* engine);
  // Runs rounds of a sequence that needs a mask of its own at each place of a long draft.
  static std::unique_ptr<StallNeighbour> Masks(StallEngine* engine);

  ~StallNeighbour();
  StallNeighbour(const StallNeighbour&) = delete;
  StallNeighbour& operator=(const StallNeighbour&) = delete;

  // Ends the work, compiles included. An error if it was not what it should be.
  absl::Status Stop();

 private:
  // One opening, or one sequence; its number makes its constraint new.
  using Step = std::function<absl::Status(StallEngine& engine, uint64_t number)>;
  StallNeighbour(StallEngine* engine, Step step);
  void Run();

  StallEngine& engine_;
  const Step step_;
  std::atomic<bool> stop_{false};
  absl::Status status_;  // written by the thread, and read when it has ended
  std::thread thread_;
};

}  // namespace specd::bench
