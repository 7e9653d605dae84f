// IpcSuite measures what another process adds to the rounds of an engine, for `specd-bench ipc`.
//
// The same rounds run embedded and attached, in blocks by turns, so that a disturbance of the
// machine disturbs both. Before each round the engine computes for a while, as a forward pass
// would. Engine and daemon have a CPU each. The suite runs on the calling thread, which it pins.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tools/bench/ipc_scene.h"
#include "tools/bench/machine.h"
#include "tools/bench/measurement.h"

namespace specd::bench {

struct IpcCase {
  std::string_view name;
  int32_t spin_us;  // of engine and daemon
  // The most that may be added, in us; 0: no target.
  double target_p50_us;
  double target_p90_us;
  std::string_view summary;
};

std::span<const IpcCase> IpcCases();
const IpcCase* FindIpcCase(std::string_view name);

struct IpcBenchOptions {
  std::string specd;  // the path of the daemon's program
  std::vector<const IpcCase*> cases;
  std::vector<int32_t> vocab_sizes;
  std::vector<int32_t> drafts;
  std::vector<int32_t> gaps_us;
  double seconds = 1;  // of each measurement
};

struct IpcMeasurement {
  const IpcCase* ipc_case = nullptr;
  int32_t vocab_size = 0;
  int32_t draft = 0;
  int32_t gap_us = 0;
  Summary embedded_us = {};
  Summary attached_us = {};
  ForeignLoad load = {};

  double added_p50_us() const { return attached_us.median - embedded_us.median; }
  double added_p90_us() const { return attached_us.p90 - embedded_us.p90; }
  bool HasTarget() const { return ipc_case->target_p50_us > 0; }
  bool IsMet() const {
    return added_p50_us() <= ipc_case->target_p50_us && added_p90_us() <= ipc_case->target_p90_us;
  }
};

class IpcSuite {
 public:
  struct Hooks {
    std::function<void(std::string_view)> on_progress;
    std::function<void(const IpcMeasurement&)> on_result;
  };
  IpcSuite(IpcBenchOptions options, Hooks hooks)
      : options_(std::move(options)), hooks_(std::move(hooks)) {}

  absl::Status Run();

 private:
  absl::Status Measure(const IpcDaemon& daemon, IpcMeasurement measurement);

  const IpcBenchOptions options_;
  const Hooks hooks_;
};

}  // namespace specd::bench
