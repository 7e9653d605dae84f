// CpuBackend runs rounds on CPUs: the backend "cpu".
//
// It uses the calling thread and a pool of its own, and the widest instruction set of the
// processor. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/backend_registry.h"
#include "kernels/cpu/chains.h"
#include "kernels/cpu/cpu_target.h"
#include "kernels/cpu/worker_pool.h"

namespace specd {

class CpuBackend final : public Backend {
 public:
  // REQUIRES: CpuTargetIsSupported(target).
  explicit CpuBackend(CpuTarget target);

  std::string_view name() const override { return "cpu"; }
  absl::Status Prepare(const BackendLimits& limits) override;
  absl::Status Run(const RoundBatch& batch) override;
  absl::Status WriteSlotOutputs(const RoundBatch& batch) override;
  absl::Status Transform(const TransformBatch& batch) override;

 private:
  // The round with resolved tasks; the given round if no task needs it.
  RoundBatch Resolved(const RoundBatch& batch);

  const ChainFunctions* functions_;
  BackendLimits limits_;
  std::unique_ptr<WorkerPool> pool_;
  std::vector<std::byte> memory_;
  std::vector<TaskWorkspace> workspaces_;  // one for each worker
  // Memory for max_batch tasks. A round touches only the part of the scratch that it needs.
  std::vector<Task> resolved_;
  std::unique_ptr<char[]> resolve_scratch_;
};

// Whether this build has the target's code and this processor can run it.
bool CpuTargetIsSupported(CpuTarget target);

// The fastest supported target.
CpuTarget BestCpuTarget();

std::unique_ptr<Backend> MakeCpuBackend();

// "cpu", as a registry has it.
BackendEntry CpuBackendEntry();

}  // namespace specd
