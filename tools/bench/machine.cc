#include "tools/bench/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace specd::bench {
namespace {

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

// sysfs writes "32768K".
int64_t ParseCacheBytes(const std::string& text) {
  const int64_t size = std::atoll(text.c_str());
  return text.ends_with('K') ? size << 10 : text.ends_with('M') ? size << 20 : size;
}

void ReadCaches(const std::vector<int>& cpus, Machine* machine) {
  std::set<std::string> counted;  // caches of the highest level, by the CPUs that share them
  int highest = 0;
  for (const int cpu : cpus) {
    for (int index = 0;; ++index) {
      const std::string folder =
          fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cpu, index);
      const std::string level_text = ReadLine(folder + "level");
      if (level_text.empty()) break;
      const int level = level_text[0] - '0';
      const int64_t size_bytes = ParseCacheBytes(ReadLine(folder + "size"));
      if (level == 2) machine->l2_bytes = size_bytes;
      if (level < highest || ReadLine(folder + "type") == "Instruction") continue;
      if (level > highest) {
        highest = level;
        counted.clear();
        machine->last_level_bytes = 0;
      }
      if (counted.insert(ReadLine(folder + "shared_cpu_list")).second) {
        machine->last_level_bytes += size_bytes;
      }
    }
  }
}

int64_t AvailableMemory() {
  return std::atoll(InfoOf("/proc/meminfo", "MemAvailable").c_str()) << 10;
}

std::string VectorExtension() {
  const std::string flags = " " + CpuInfo("flags") + " ";
  for (const std::string_view name : {"avx512f", "avx2", "avx", "sse4_2"}) {
    if (flags.find(fmt::format(" {} ", name)) != std::string::npos) return std::string(name);
  }
  return "no vector extension known";
}

int64_t ToTicks(const timeval& time) {
  static const int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  return time.tv_sec * ticks_per_second + time.tv_usec * ticks_per_second / 1000000;
}

}  // namespace

std::vector<int> UsableCpus() {
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
}

Machine ReadMachine() {
  Machine machine;
  const std::vector<int> cpus = UsableCpus();
  machine.usable_cpus = static_cast<int32_t>(cpus.size());
  machine.processor = fmt::format("{}, family {}, model {}, {}", CpuInfo("model name"),
                                  CpuInfo("cpu family"), CpuInfo("model"), VectorExtension());
  ReadCaches(cpus, &machine);
  machine.memory_bytes = AvailableMemory();
  return machine;
}

std::string Describe(const Machine& machine, int32_t threads) {
  const auto megabytes = [](int64_t bytes) { return fmt::format("{:.0f} MiB", bytes / 1048576.0); };
  return fmt::format("{}; {} usable CPUs, {} used; L2 {} a core, last-level cache {}",
                     machine.processor, machine.usable_cpus, threads, megabytes(machine.l2_bytes),
                     megabytes(machine.last_level_bytes));
}

LoadMeter::LoadMeter() : start_(Now()) {}

LoadMeter::Ticks LoadMeter::Now() {
  Ticks ticks;
  const std::vector<int> cpus = UsableCpus();
  std::ifstream file("/proc/stat");
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, 3, "cpu") != 0 || line.size() < 4 || line[3] == ' ') continue;
    std::istringstream stream(line.substr(3));
    int cpu = 0;
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
    int64_t field[8] = {};
    stream >> cpu;
    for (int64_t& value : field) stream >> value;
    if (std::find(cpus.begin(), cpus.end(), cpu) == cpus.end()) continue;
    for (const int64_t value : field) ticks.total += value;
    ticks.busy += field[0] + field[1] + field[2] + field[5] + field[6];
    ticks.stolen += field[7];
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  ticks.own = ToTicks(usage.ru_utime) + ToTicks(usage.ru_stime);
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

}  // namespace specd::bench
