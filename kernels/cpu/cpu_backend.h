// CpuBackend: rounds on the calling thread, by the widest instruction set that the processor has.
// Made by MakeBackend("cpu"); one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/chains.h"

namespace specd {

class CpuBackend final : public Backend {
 public:
  // REQUIRES: CpuTargetIsSupported(target).
  explicit CpuBackend(CpuTarget target);

  std::string_view name() const override { return "cpu"; }
  absl::Status Prepare(const BackendLimits& limits) override;
  absl::Status Run(const RoundBatch& batch) override;

 private:
  RunChainsFunction run_chains_;
  BackendLimits limits_;
  std::vector<uint64_t> workspace_;
};

// Whether this build holds the target's code and this processor can run it.
bool CpuTargetIsSupported(CpuTarget target);

// The best supported target.
std::unique_ptr<Backend> MakeCpuBackend();

}  // namespace specd
