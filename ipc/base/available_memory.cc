#include "ipc/base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

namespace specd {
namespace {

constexpr char kGroups[] = "/sys/fs/cgroup";

// The number that the file begins with; nothing for "max".
std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The value of `name` in lines such as "inactive_file 4096".
uint64_t FieldOf(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string found;
  uint64_t value = 0;
  while (file >> found >> value) {
    if (found == name) return value;
  }
  return 0;
}

std::optional<uint64_t> MachineBytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    uint64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

// Returns the memory that the group at `folder` has left. Cached file pages can be dropped, so they
// count as left.
std::optional<uint64_t> GroupBytes(const std::string& folder, bool is_v2) {
  const auto limit = NumberIn(folder + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = NumberIn(folder + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit.has_value() || !used.has_value()) return std::nullopt;
  const uint64_t cached =
      FieldOf(folder + "/memory.stat", is_v2 ? "inactive_file" : "total_inactive_file");
  const uint64_t held = *used - std::min(*used, cached);
  return *limit - std::min(*limit, held);
}

}  // namespace

AvailableMemory FindAvailableMemory(const std::string& root) {
  AvailableMemory available;
  const auto bound = [&available](std::optional<uint64_t> bytes, std::string by) {
    if (!bytes.has_value() || *bytes >= available.bytes) return;
    available = {.bytes = *bytes, .bound_by = std::move(by)};
  };
  bound(MachineBytes(root), "MemAvailable of the machine");
  // A line is "0::/path" for version 2, and "4:memory:/path" for version 1.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos || line.size() <= second + 1 ||
        line[second + 1] != '/') {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && controllers != "memory") continue;
    const std::string top = root + kGroups + (is_v2 ? "" : "/memory");
    // A parent's limit holds too.
    std::string path = line.substr(second + 1);
    while (true) {
      if (path == "/") path.clear();
      bound(GroupBytes(top + path, is_v2),
            "the memory of control group " + (path.empty() ? "/" : path));
      if (path.empty()) break;
      path.resize(path.rfind('/'));
    }
  }
  return available;
}

}  // namespace specd
