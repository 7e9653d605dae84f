#include "tools/bench/timing.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

#include "kernels/core/check.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// Turns whose samples are kept, if they are very short.
constexpr size_t kTurnsMax = 200'000;

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of the first "key : value" of a file.
std::string InfoOf(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || line.find_first_not_of("\t ", key.size()) != colon) continue;
    return line.substr(std::min(line.find_first_not_of(' ', colon + 1), line.size()));
  }
  return "";
}
std::string CpuInfo(std::string_view key) { return InfoOf("/proc/cpuinfo", key); }

// Of all caches of the highest level that the CPUs reach, each counted once.
int64_t LastLevelBytes(const std::vector<int>& cpus) {
  std::map<std::string, int64_t> sizes;  // by the CPUs that share one
  for (const int cpu : cpus) {
    const auto folder_of = [cpu](int index) {
      return fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cpu, index);
    };
    int index = 0;  // in the order of their levels
    while (!ReadLine(folder_of(index + 1) + "level").empty()) ++index;
    sizes[ReadLine(folder_of(index) + "shared_cpu_list")] =
        std::atoll(ReadLine(folder_of(index) + "size").c_str()) << 10;  // sysfs writes "32768K"
  }
  int64_t sum = 0;
  for (const auto& [shared_by, size_bytes] : sizes) sum += size_bytes;
  return sum;
}

int64_t ToTicks(const timeval& time) {
  static const int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  return time.tv_sec * ticks_per_second + time.tv_usec * ticks_per_second / 1000000;
}

}  // namespace

const std::vector<int>& UsableCpus() {
  static const std::vector<int> usable = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cpus;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
      }
    }
    if (cpus.empty()) cpus.push_back(0);
    return cpus;
  }();
  return usable;
}

Machine ReadMachine() {
  Machine machine;
  const std::vector<int>& cpus = UsableCpus();
  machine.usable_cpus = static_cast<int32_t>(cpus.size());
  const std::string flags = CpuInfo("flags");
  const auto has = [&](const char* name) { return flags.find(name) != std::string::npos; };
  machine.processor = fmt::format("{}, family {}, model {}, {}", CpuInfo("model name"),
                                  CpuInfo("cpu family"), CpuInfo("model"),
                                  has("avx512f") ? "avx512f"
                                  : has("avx2")  ? "avx2"
                                                 : "no avx2");
  machine.last_level_bytes = LastLevelBytes(cpus);
  machine.memory_bytes = std::atoll(InfoOf("/proc/meminfo", "MemAvailable").c_str()) << 10;
  return machine;
}

std::vector<pid_t>& OwnProcesses() {
  static std::vector<pid_t> processes;
  return processes;
}

LoadMeter::LoadMeter() : start_(Now()) {}

LoadMeter::Ticks LoadMeter::Now() {
  Ticks ticks;
  std::vector<std::string> names;
  for (const int cpu : UsableCpus()) names.push_back(fmt::format("cpu{}", cpu));
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    std::istringstream stream(line);
    std::string name;
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
    int64_t field[8] = {};
    stream >> name;
    for (int64_t& value : field) stream >> value;
    if (std::ranges::count(names, name) == 0) continue;
    for (const int64_t value : field) ticks.total += value;
    ticks.busy += field[0] + field[1] + field[2] + field[5] + field[6];
    ticks.stolen += field[7];
  }
  // Those that have ended are children, and the others have a clock.
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage = {};
    getrusage(who, &usage);
    ticks.own += ToTicks(usage.ru_utime) + ToTicks(usage.ru_stime);
  }
  for (const pid_t process : OwnProcesses()) {
    clockid_t clock = 0;
    timespec time = {};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) continue;
    ticks.own += ToTicks({.tv_sec = time.tv_sec, .tv_usec = time.tv_nsec / 1000});
  }
  return ticks;
}

ForeignLoad LoadMeter::Read() const {
  const Ticks now = Now();
  const double total = static_cast<double>(now.total - start_.total);
  if (total <= 0) return {};
  // Ticks are coarse: this process may have used more than its CPUs have been charged with yet.
  const int64_t others = (now.busy - start_.busy) - (now.own - start_.own);
  return {.others = static_cast<double>(std::max<int64_t>(others, 0)) / total,
          .stolen = static_cast<double>(now.stolen - start_.stolen) / total};
}

absl::StatusOr<ForeignLoad> TakeTurns(const TimingBounds& bounds, std::vector<Side>* sides) {
  const auto turn = [&](size_t index) -> absl::Status {
    for (size_t i = 0; i < sides->size(); ++i) {
      Side& side = (*sides)[(index + i) % sides->size()];
      SPECD_TRY(side.turn(&side.times_us));
    }
    return absl::OkStatus();
  };
  for (size_t i = 0; i < bounds.warm_up; ++i) SPECD_TRY(turn(i));
  for (Side& side : *sides) side.times_us.clear();
  const LoadMeter meter;
  const SteadyClock::time_point start = SteadyClock::now();
  for (size_t i = 0;
       i < bounds.least || (i < kTurnsMax && MicrosSince(start) < 1e6 * bounds.seconds); ++i) {
    SPECD_TRY(turn(i));
  }
  return meter.Read();
}

Summary Summarise(std::vector<double> values) {
  SPECD_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  // The smallest value that this share of all values does not exceed.
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
  };
  return {at(0.5), at(0.1), at(0.9), at(0.99), values.back(), static_cast<int64_t>(values.size())};
}

}  // namespace specd::bench
