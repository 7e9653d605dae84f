// ReplayBackend runs rebuilt rounds on a backend of this machine, for verify, show and rerun.
//
// The names are "cpu" (the widest instruction set of this processor), "scalar" (the CPU's code
// without vector instructions), "emulated" (a CUDA block on the host) and "cuda". One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "tools/replay/round_rebuilder.h"

namespace specd::replay {

// The backends that this build has and this machine can run.
std::vector<std::string> BackendsHere();

// An error names the backend, the reason, and those that are here.
absl::StatusOr<std::unique_ptr<Backend>> MakeNamedBackend(std::string_view name);

class ReplayBackend {
 public:
  ReplayBackend(std::unique_ptr<Backend> backend, int32_t threads)
      : backend_(std::move(backend)), threads_(threads) {}

  // Runs the tasks of the rebuilder, if it has some. The answers are in the rebuilder.
  absl::Status Run(RoundRebuilder* round);
  absl::Status Transform(const TransformBatch& batch);

 private:
  absl::Status Prepare(int32_t vocab_size, int32_t num_tasks);

  std::unique_ptr<Backend> backend_;
  int32_t threads_;
  int32_t vocab_size_ = 0;
  int32_t max_batch_ = 0;
};

}  // namespace specd::replay
