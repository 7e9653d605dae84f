// TakeTurns is the loop that every suite times with, and Summarise makes a Summary of its samples.
// Machine describes the machine for the report, and LoadMeter measures the load of other processes.
//
// The sides of a comparison take turns, so that a disturbance of the machine disturbs all of them.
// They run on the calling thread. Everything about the machine is read from sysfs and procfs when
// asked for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd::bench {

struct Machine {
  std::string processor = {};    // the vendor's name, with family, model and vector extension
  int32_t usable_cpus = 1;       // that this process's affinity allows
  int64_t last_level_bytes = 0;  // of all last-level caches that the usable CPUs reach
  int64_t memory_bytes = 0;      // available now, without swapping
};

Machine ReadMachine();

// The CPUs that this process's affinity allowed at the first call; one at least. A thread that is
// pinned later leaves the list as it is.
const std::vector<int>& UsableCpus();

// Processes that this one has started; their load is its own. One thread changes the list.
std::vector<pid_t>& OwnProcesses();

// The load of others on the usable CPUs since the meter was made, as shares of the CPUs' time.
struct ForeignLoad {
  double others = 0;  // run by other processes
  double stolen = 0;  // taken by the hypervisor
};

class LoadMeter {
 public:
  LoadMeter();
  ForeignLoad Read() const;

 private:
  struct Ticks {
    int64_t total = 0;
    int64_t busy = 0;  // without stolen time
    int64_t stolen = 0;
    int64_t own = 0;
  };
  static Ticks Now();
  Ticks start_;
};

// With a larger share, a measurement says more about the neighbours than about the code.
inline bool IsDisturbed(const ForeignLoad& load) {
  return load.others > 0.05 || load.stolen > 0.01;
}

// The clock of every measurement; specd::Clock is the daemon's.
using SteadyClock = std::chrono::steady_clock;

inline double MicrosSince(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
}

struct TimingBounds {
  double seconds = 1;
  size_t least = 5;    // turns, however long they take: enough for a median
  size_t warm_up = 0;  // turns before them, whose times are dropped
};

// One side of a comparison. A turn appends its times.
using Times = std::vector<double>;
struct Side {
  std::function<absl::Status(Times* times_us)> turn;
  Times times_us = {};
};

// Runs turns of each side until the seconds are over and there are enough of them, or until one
// fails. The sides are first in turn. Returns the load of other processes meanwhile.
absl::StatusOr<ForeignLoad> TakeTurns(const TimingBounds& bounds, std::vector<Side>* sides);

struct Summary {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
  int64_t num_samples = 0;
};

// REQUIRES: at least one value.
Summary Summarise(std::vector<double> values);

}  // namespace specd::bench
