// ReplayBackend runs rebuilt rounds on a backend, for verify, show, rerun and doctor.
//
// named_backend.h makes backends by their names. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "tools/replay/round_rebuilder.h"

namespace specd::replay {

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
