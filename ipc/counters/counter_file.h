// CounterFile makes the counters file of a daemon and maps it (ipc/counters/counter_layout.h).
//
// A daemon that ends removes its file. That of a daemon that hangs, or that was killed, can be
// read; the next daemon with the path replaces it. If the file is cut short, the values continue in
// memory that no reader sees, and the daemon lives. Movable; not synchronized.
//
//   auto file = CounterFile::Create("/run/specd/specd.sock.counters", plan);
//   auto* meters = new (file->values()) Meters;
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ipc/base/fault_guard.h"
#include "ipc/base/mapping.h"
#include "ipc/base/unique_fd.h"
#include "ipc/counters/counter_layout.h"

namespace specd {

// One line of an exposition, or one histogram.
struct CounterSeries {
  std::string name = {};  // of the family: specd:rounds
  std::string labels = {};
  std::string help = {};
  CounterKind kind = CounterKind::kCounter;
  bool is_optional = false;
  uint64_t first_value = 0;
  uint32_t num_values = 1;
};

struct CounterPlan {
  std::vector<CounterSeries> series;  // those of one family stand together
  uint64_t num_values = 0;
  uint64_t epoch = 0;
};

class CounterFile {
 public:
  // With an empty path the values have no file. FAILED_PRECONDITION if another process writes
  // the file at the path, or if the file there is none of counters: this class never replaces
  // such a file.
  static absl::StatusOr<CounterFile> Create(const std::string& path, const CounterPlan& plan);

  CounterFile(CounterFile&&) noexcept = default;
  CounterFile& operator=(CounterFile&&) = delete;
  ~CounterFile();

  void* values() const { return values_; }  // zeros at first; on a cache line

 private:
  CounterFile(std::string path, UniqueFd fd, Mapping mapping, uint64_t values_offset);

  std::string path_;
  UniqueFd fd_;  // its lock says that the daemon lives; invalid after a move
  Mapping mapping_;
  void* values_;
  std::unique_ptr<std::atomic<bool>> is_lost_;  // the file was cut short
  FaultGuard guard_;
};

}  // namespace specd
