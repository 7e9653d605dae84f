// CEngine is an engine over the C interface, and DaemonProcess a daemon that it attaches to, for
// the suites `ipc` and `python`.
//
// The daemon runs in a process of its own, on a CPU of its own, and without text. One thread uses
// both.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/include/specd/specd.h"

namespace specd::bench {

// The path of specd: the given one, or the one beside this program.
std::string DaemonProgram(const std::string& given);

class DaemonProcess {
 public:
  // `program` is the path of specd. The daemon runs on this CPU alone, and looks for rounds for
  // spin_us before it sleeps.
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> Start(const std::string& program, int cpu,
                                                              int32_t spin_us);
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  std::string uri() const { return "unix:" + directory_ + "/s"; }

 private:
  DaemonProcess(std::string directory, pid_t pid) : directory_(std::move(directory)), pid_(pid) {}
  absl::Status AwaitSocket() const;

  const std::string directory_;
  const pid_t pid_;
};

// The status of a call of the C interface that returned this code.
absl::Status Done(std::string_view call, int code);

class CEngine {
 public:
  static constexpr int kTimeoutMs = 20'000;

  CEngine() = default;
  ~CEngine();
  CEngine(const CEngine&) = delete;
  CEngine& operator=(const CEngine&) = delete;

  absl::Status Open(const std::string& uri, const specd_options& options);
  // Binds fp32 rows of zeros.
  absl::StatusOr<float*> Bind(uint32_t role, uint32_t num_rows, uint32_t vocab_size);
  absl::StatusOr<specd_sequence_info> OpenSequence(const std::string& name,
                                                   const specd_params& params);
  // Submits a round and waits for its answer. Returns the time of both in us. Every part must be
  // verified.
  absl::StatusOr<double> RunRound(const std::vector<specd_draft>& parts, specd_completion* done);

  specd_engine* get() const { return engine_; }
  uint64_t NextRound() { return ++num_rounds_; }
  uint64_t num_rounds() const { return num_rounds_; }

 private:
  specd_engine* engine_ = nullptr;
  uint64_t num_rounds_ = 0;
};

}  // namespace specd::bench
