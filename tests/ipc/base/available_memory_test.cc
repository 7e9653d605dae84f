// The least of the machine's memory and of every control group above the process.
#include "ipc/base/available_memory.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

class Machine {
 public:
  Machine() {
    Write("/proc/meminfo", "MemTotal: 4000 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\n");
  }
  void Write(const std::string& path, const std::string& text) const { root_.Write(path, text); }
  // A group of version 2.
  void AddGroup(const std::string& path, const std::string& limit, uint64_t used,
                uint64_t cached) const {
    const std::string folder = "/sys/fs/cgroup" + path;
    Write(folder + "/memory.max", limit + "\n");
    Write(folder + "/memory.current", std::to_string(used) + "\n");
    Write(folder + "/memory.stat",
          "anon 1\ninactive_file " + std::to_string(cached) + "\nfile 3\n");
  }
  AvailableMemory Find() const { return FindAvailableMemory(root_.path()); }

 private:
  const TemporaryFolder root_;
};

TEST_SUITE("unit") {
  TEST_CASE("without a group the machine's memory counts") {
    const Machine machine;
    CHECK(machine.Find().bytes == 1000 * 1024);
    CHECK(machine.Find().bound_by == "MemAvailable of the machine");
    machine.Write("/proc/self/cgroup", "0::/\n");
    CHECK(machine.Find().bytes == 1000 * 1024);
  }

  TEST_CASE("a group's limit counts, less what it uses, and cached pages can be dropped") {
    const Machine machine;
    machine.Write("/proc/self/cgroup", "0::/pod/engine\n");
    machine.AddGroup("/pod/engine", "900000", 500000, 100000);
    CHECK(machine.Find().bytes == 500000);
    CHECK(machine.Find().bound_by == "the memory of control group /pod/engine");
    // A parent with less left is the bound.
    machine.AddGroup("/pod", "600000", 550000, 0);
    CHECK(machine.Find().bytes == 50000);
    CHECK(machine.Find().bound_by == "the memory of control group /pod");
    machine.AddGroup("/pod", "max", 550000, 0);
    machine.AddGroup("/pod/engine", "max", 500000, 0);
    CHECK(machine.Find().bytes == 1000 * 1024);
  }

  TEST_CASE("a group that uses more than its limit has nothing left") {
    const Machine machine;
    machine.Write("/proc/self/cgroup", "0::/g\n");
    machine.AddGroup("/g", "1000", 2000, 5000);
    CHECK(machine.Find().bytes == 1000);  // all that it holds can be dropped
    machine.AddGroup("/g", "1000", 2000, 10);
    CHECK(machine.Find().bytes == 0);
  }

  TEST_CASE("groups of version 1 count too") {
    const Machine machine;
    machine.Write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/x/y\n0::/\nnonsense\n3:memory:\n");
    machine.Write("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "70000\n");
    machine.Write("/sys/fs/cgroup/memory/x/y/memory.usage_in_bytes", "40000\n");
    machine.Write("/sys/fs/cgroup/memory/x/y/memory.stat", "total_inactive_file 5000\n");
    CHECK(machine.Find().bytes == 35000);
    machine.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "50000\n");
    machine.Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "49000\n");
    CHECK(machine.Find().bytes == 1000);
  }

  TEST_CASE("where nothing is known nothing is bounded") {
    CHECK(FindAvailableMemory("/no/such/folder").bytes == UINT64_MAX);
  }

  TEST_CASE("this machine's memory is found") {
    const AvailableMemory available = FindAvailableMemory();
    CHECK(available.bytes > 0);
    CHECK(available.bytes < UINT64_MAX);
  }
}

}  // namespace
}  // namespace specd
