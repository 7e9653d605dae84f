// A round on one CPU thread, compiled once for each instruction set.
//
// chains_baseline.cc and chains_avx2.cc are this template for one CpuTarget each, compiled with the
// flags of that target. cpu_backend.cc picks one when it starts.
#pragma once

#include "kernels/bodies/verify.h"
#include "kernels/core/round.h"
#include "kernels/cpu/scalar_team.h"

namespace specd {

// `workspace` has ChainWorkspaceBytes(batch.target.vocab_size) bytes, aligned to 8.
using RunChainsFunction = void (*)(const RoundBatch& batch, void* workspace);

void RunChainsBaseline(const RoundBatch& batch, void* workspace);
#if defined(SPECD_HAVE_AVX2_CHAINS)
void RunChainsAvx2(const RoundBatch& batch, void* workspace);
#endif

template <CpuTarget kTarget>
void RunChains(const RoundBatch& batch, void* memory) {
  const ChainWorkspace workspace = ChainWorkspaceAt(memory, batch.target.vocab_size);
  ScalarTeam<kTarget> team;
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    const ChainTask& task = batch.tasks[i];
    TokenId* tokens = batch.tokens + int64_t{i} * batch.tokens_stride;
    batch.outcomes[i] = VerifyChain(team, task, batch.target, batch.draft, workspace,
                                    KeyedCoins(task.seed), tokens);
  }
}

}  // namespace specd
