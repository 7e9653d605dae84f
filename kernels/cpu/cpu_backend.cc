#include "kernels/cpu/cpu_backend.h"

#include "kernels/core/fp_environment.h"

namespace specd {

CpuBackend::CpuBackend(CpuTarget target) : run_chains_(&RunChainsBaseline) {
  SPECD_CHECK(CpuTargetIsSupported(target));
#if defined(SPECD_HAVE_AVX2_CHAINS)
  if (target == CpuTarget::kAvx2) run_chains_ = &RunChainsAvx2;
#endif
}

absl::Status CpuBackend::Prepare(const BackendLimits& limits) {
  SPECD_CHECK(limits.vocab_size >= 1 && limits.vocab_size <= kVocabSizeMax);
  limits_ = limits;
  workspace_.assign(ChainWorkspaceBytes(limits.vocab_size) / sizeof(uint64_t), 0);
  return absl::OkStatus();
}

absl::Status CpuBackend::Run(const RoundBatch& batch) {
  SPECD_CHECK(batch.target.vocab_size >= 1 && batch.target.vocab_size <= limits_.vocab_size);
  SPECD_CHECK(batch.draft.num_rows == 0 || batch.draft.vocab_size == batch.target.vocab_size);
  SPECD_CHECK(batch.num_tasks <= limits_.max_batch);
  SPECD_CHECK(batch.tokens_stride > limits_.max_draft);
  const FpEnvironment environment;
  run_chains_(batch, workspace_.data());
  return absl::OkStatus();
}

bool CpuTargetIsSupported(CpuTarget target) {
  switch (target) {
    case CpuTarget::kBaseline:
      return true;
    case CpuTarget::kAvx2:
#if defined(SPECD_HAVE_AVX2_CHAINS)
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
      return false;
#endif
  }
  return false;
}

std::unique_ptr<Backend> MakeCpuBackend() {
  const CpuTarget target =
      CpuTargetIsSupported(CpuTarget::kAvx2) ? CpuTarget::kAvx2 : CpuTarget::kBaseline;
  return std::make_unique<CpuBackend>(target);
}

}  // namespace specd
