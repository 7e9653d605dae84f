// Neighbour repeats one kind of work of an engine on a thread of its own, for the suites `opening`
// and `stall`, until it is stopped.
//
// Every hostile constraint is new, so nothing of it has been compiled or masked before. Its
// openings have threads of their own, as in OpeningThreads, because a long compile lowers its
// thread's priority. One thread calls the public functions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>

#include "absl/status/statusor.h"
#include "tools/bench/session_engine.h"
#include "tools/bench/timing.h"

namespace specd::bench {

class Neighbour {
 public:
  // One piece of work; its number makes a constraint new. Returns the time of the opening in us.
  using Step = std::function<absl::StatusOr<double>(SessionEngine& engine, uint64_t number)>;

  // Opens a sequence with a prompt, and closes it. The prompt is checked, counted, kept, and
  // indexed by its n-grams.
  static Step LongPrompt(size_t num_ids, uint32_t vocab_size);
  // Opens a sequence whose constraint uses up the budget of a compile.
  static absl::StatusOr<double> HostileOpening(SessionEngine& engine, uint64_t number);
  // Runs rounds of a sequence that needs a mask of its own at each place of a long draft.
  static absl::StatusOr<double> NewMasks(SessionEngine& engine, uint64_t number);

  // The engine outlives it.
  Neighbour(SessionEngine* engine, Step step);
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  // Pieces of work that have begun, and those that have ended.
  int64_t num_begun() const { return num_begun_.load(std::memory_order_relaxed); }
  int64_t num_done() const { return num_done_.load(std::memory_order_relaxed); }

  // Ends the work, compiles included. Returns the times, or an error if the work was not what it
  // should be.
  absl::StatusOr<Times> Stop();

 private:
  absl::StatusOr<Times> Run(SessionEngine& engine, const Step& step);

  std::atomic<bool> stop_{false};
  std::atomic<int64_t> num_begun_{0};
  std::atomic<int64_t> num_done_{0};
  std::future<absl::StatusOr<Times>> work_;
};

}  // namespace specd::bench
