#include "kernels/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "kernels/bodies/resolve.h"
#include "kernels/core/fp_environment.h"
#include "kernels/cpu/lone_lane.h"

#if defined(SPECD_HAVE_SIMD)
#include <cpuid.h>
#endif

namespace specd {

namespace {

// Waking a thread takes as long as reading about this many tiles.
constexpr int64_t kSharedTilesMin = 64;

#if defined(SPECD_HAVE_SIMD)
// The cpu_supports of GCC and of Clang knows the name only in newer versions.
bool HasF16c() {
  constexpr unsigned kF16cBit = 1u << 29;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kF16cBit) != 0;
}
#endif

const ChainFunctions& FunctionsOf(CpuTarget target) {
#if defined(SPECD_HAVE_SIMD)
  if (target == CpuTarget::kAvx2) return kChainsAvx2;
  if (target == CpuTarget::kAvx512) return kChainsAvx512;
#endif
  return kChainsBaseline;
}

}  // namespace

CpuBackend::CpuBackend(CpuTarget target) : functions_(&FunctionsOf(target)) {
  SPECD_CHECK(CpuTargetIsSupported(target));
}

absl::Status CpuBackend::Prepare(const BackendLimits& limits) {
  SPECD_CHECK(limits.vocab_size >= 1 && limits.vocab_size <= kVocabSizeMax);
  SPECD_CHECK(limits.threads >= 1);
  limits_ = limits;
  try {
    pool_ = std::make_unique<WorkerPool>(limits.threads);
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        fmt::format("threads: {} could not be started ({}): ask for fewer, or raise the limit of "
                    "processes and threads",
                    limits.threads, error.what()));
  }
  // Workers write their workspaces all the time, so no two workspaces share a cache line.
  constexpr int64_t kCacheLineBytes = 128;
  const int64_t bytes =
      (TaskWorkspaceBytes(limits.vocab_size, limits.max_draft) / kCacheLineBytes + 2) *
      kCacheLineBytes;
  memory_.assign(bytes * limits.threads, std::byte{0});
  workspaces_.clear();
  for (int32_t worker = 0; worker < limits.threads; ++worker) {
    workspaces_.push_back(
        TaskWorkspaceAt(memory_.data() + worker * bytes, limits.vocab_size, limits.max_draft));
  }
  resolved_.resize(static_cast<size_t>(limits.max_batch));
  resolve_scratch_ = std::make_unique_for_overwrite<char[]>(
      static_cast<size_t>(limits.max_batch * ResolveBytes(limits.max_draft, limits.recent_room)));
  return absl::OkStatus();
}

RoundBatch CpuBackend::Resolved(const RoundBatch& batch) {
  RoundBatch resolved = batch;
  if (std::none_of(batch.tasks, batch.tasks + batch.num_tasks, NeedsResolve)) return resolved;
  SPECD_CHECK(batch.slots.recent_room <= limits_.recent_room);
  resolved.tasks = resolved_.data();
  // Draft tokens by slot are read once: the engine may write there again.
  if (batch.progress != nullptr && batch.progress->has_begun) return resolved;
  const ResolvePlan plan{.given = batch.tasks,
                         .tasks = resolved_.data(),
                         .scratch = resolve_scratch_.get(),
                         .max_draft = limits_.max_draft};
  RunResolve<1>(LoneLane(), batch, plan, nullptr);
  return resolved;
}

absl::Status CpuBackend::Run(const RoundBatch& batch) {
  SPECD_CHECK(batch.target.vocab_size >= 1 && batch.target.vocab_size <= limits_.vocab_size);
  SPECD_CHECK(batch.draft.num_rows == 0 || batch.draft.vocab_size == batch.target.vocab_size);
  SPECD_CHECK(batch.num_tasks <= limits_.max_batch);
  SPECD_CHECK(batch.tokens_stride >= limits_.max_output());
  // A single task always has the first workspace, so a paused task finds its places there.
  SPECD_CHECK(batch.progress == nullptr || batch.num_tasks == 1);
  const FpEnvironment environment;
  const RoundBatch resolved = Resolved(batch);
  int64_t num_rows = 0;
  for (int32_t i = 0; i < batch.num_tasks; ++i) num_rows += resolved.tasks[i].draft.num_nodes + 1;
  const bool alone = num_rows * NumTiles(batch.target.vocab_size) < kSharedTilesMin;
  pool_->Share(batch.num_tasks, alone, [&](int32_t task, int32_t workspace, const TeamSeat& seat) {
    functions_->run_task(resolved, task, workspaces_[workspace], seat);
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::WriteSlotOutputs(const RoundBatch& batch) {
  for (int32_t task = 0; task < batch.num_tasks; ++task) {
    if (!WritesSlot(batch, task)) continue;
    for (int32_t i = 0; i < batch.num_slot_outputs; ++i) {
      const SlotOutput& output = batch.slot_outputs[i];
      WriteSlotRowOf(batch, task, output, RowOf(output, batch.tasks[task].slot));
    }
  }
  return absl::OkStatus();
}

absl::Status CpuBackend::Transform(const TransformBatch& batch) {
  SPECD_CHECK(batch.source.vocab_size >= 1 && batch.source.vocab_size <= limits_.vocab_size);
  const FpEnvironment environment;
  const int64_t num_rows = batch.num_rows;
  const bool alone = num_rows * NumTiles(batch.source.vocab_size) < kSharedTilesMin;
  pool_->Share(batch.num_rows, alone, [&](int32_t row, int32_t workspace, const TeamSeat& seat) {
    functions_->transform_row(batch, row, workspaces_[workspace], seat);
  });
  return absl::OkStatus();
}

bool CpuTargetIsSupported(CpuTarget target) {
#if defined(SPECD_HAVE_SIMD)
  // F16C is older than AVX2, and BMI and FMA came with AVX2. Every processor with AVX2 has all
  // three, but an emulator may lack some.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && HasF16c();
  if (target == CpuTarget::kAvx2) return avx2;
  if (target == CpuTarget::kAvx512) {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return target == CpuTarget::kBaseline;
}

CpuTarget BestCpuTarget() {
  for (const CpuTarget target : {CpuTarget::kAvx512, CpuTarget::kAvx2}) {
    if (CpuTargetIsSupported(target)) return target;
  }
  return CpuTarget::kBaseline;
}

std::unique_ptr<Backend> MakeCpuBackend() { return std::make_unique<CpuBackend>(BestCpuTarget()); }

BackendEntry CpuBackendEntry() {
  return {.name = "cpu", .is_own = true, .make = [](const BackendOptions&) {
            return MakeCpuBackend();
          }};
}

}  // namespace specd
