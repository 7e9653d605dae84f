// IpcDaemon and IpcEngine are the two sides that `specd-bench ipc` measures between.
//
// The daemon runs in a process of its own, on a CPU of its own, and without text. An engine is
// attached to it or embedded, and plays rounds of one sequence through the C interface. One thread
// uses both.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/include/specd/specd.h"

namespace specd::bench {

class IpcDaemon {
 public:
  // `program` is the path of specd. The daemon runs on this CPU alone, and looks for rounds for
  // spin_us before it sleeps.
  static absl::StatusOr<std::unique_ptr<IpcDaemon>> Start(const std::string& program, int cpu,
                                                          int32_t spin_us);
  ~IpcDaemon();
  IpcDaemon(const IpcDaemon&) = delete;
  IpcDaemon& operator=(const IpcDaemon&) = delete;

  std::string uri() const { return "unix:" + directory_ + "/s"; }

 private:
  IpcDaemon(std::string directory, pid_t pid) : directory_(std::move(directory)), pid_(pid) {}
  absl::Status AwaitSocket() const;

  const std::string directory_;
  const pid_t pid_;
};

struct IpcRound {
  uint32_t vocab_size = 0;
  uint32_t num_draft = 0;
};

class IpcEngine {
 public:
  // `spin_us` is that of specd_options.
  static absl::StatusOr<std::unique_ptr<IpcEngine>> Open(const std::string& uri,
                                                         const IpcRound& round, int32_t spin_us);
  ~IpcEngine();
  IpcEngine(const IpcEngine&) = delete;
  IpcEngine& operator=(const IpcEngine&) = delete;

  // Submits a round and waits for its answer. Returns the time of both in us.
  absl::StatusOr<double> RunRound();

  // A number that the kept ids of all rounds determine.
  uint64_t digest() const { return digest_; }
  uint64_t num_rounds() const { return num_rounds_; }

 private:
  IpcEngine() = default;
  absl::Status Start(const std::string& uri, const IpcRound& round, int32_t spin_us);

  specd_engine* engine_ = nullptr;
  specd_sequence sequence_ = 0;
  std::vector<int32_t> drafts_;
  std::vector<uint32_t> rows_;
  uint64_t num_rounds_ = 0;
  uint64_t digest_ = 0;
};

}  // namespace specd::bench
