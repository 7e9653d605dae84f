// Machine describes the machine of a benchmark for its report, and LoadMeter measures the load of
// other processes.
//
// Everything is read from sysfs and procfs when asked for. One thread uses a LoadMeter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace specd::bench {

struct Machine {
  std::string processor = {};    // the vendor's name, with family, model and vector extension
  int32_t usable_cpus = 1;       // that this process's affinity allows
  int64_t l2_bytes = 0;          // of one core
  int64_t last_level_bytes = 0;  // of all last-level caches that the usable CPUs reach
  int64_t memory_bytes = 0;      // available now, without swapping
};

Machine ReadMachine();

// The CPUs that this process's affinity allows; one at least.
std::vector<int> UsableCpus();

// One line for people, with the number of threads that were used.
std::string Describe(const Machine& machine, int32_t threads);

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
inline constexpr double kOthersMax = 0.05;
inline constexpr double kStolenMax = 0.01;
inline bool IsDisturbed(const ForeignLoad& load) {
  return load.others > kOthersMax || load.stolen > kStolenMax;
}

}  // namespace specd::bench
