// RoundsOfEveryKind lists rounds for tests of what must not change an answer. CheckEverywhere
// compares the answers of one round by every processor for tests: the CPU's teams with one thread
// and with three, and emulated blocks.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/cuda/run_backend.h"
#include "tests/kernels/cuda/run_round.h"

namespace specd {

// Every kind of row there is, over one tile and over several. The first round has this seed.
inline std::vector<RoundCase::Options> RoundsOfEveryKind(int32_t batch, uint64_t seed) {
  std::vector<RoundCase::Options> all;
  for (int i = 0; i < 7; ++i) {
    RoundCase::Options options{
        .vocab_size = 300, .batch = batch, .max_draft = 8, .seed = seed + uint64_t(i)};
    if (i < 3) options.dtype = static_cast<DType>(i);
    if (i == 1) options.scaled = true;
    if (i == 2) options.vocab_size = 2 * kTileSize + 9;
    if (i == 3) options.target_kind = options.draft_kind = RowKind::kProbabilities;
    if (i == 4) options.target_kind = options.draft_kind = RowKind::kFinalProbabilities;
    if (i == 5) options.vocab_size = 3;
    if (i == 6) options.sampled = true;
    all.push_back(options);
  }
  return all;
}

inline void CheckEverywhere(RoundCase& round, const RoundBatch& batch,
                            const RoundCase::Options& options,
                            const std::vector<std::string>& expected) {
  for (const CpuTarget target : {CpuTarget::kBaseline, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
    if (!CpuTargetIsSupported(target)) continue;
    for (const int32_t threads : {1, 3}) {
      CpuBackend backend(target);
      REQUIRE(
          backend.Prepare({options.vocab_size, options.batch, options.max_draft, threads}).ok());
      CHECK(RunAll(backend, round, batch) == expected);
    }
  }
  for (const int32_t num_blocks : {1, 7}) {
    const LaunchResult result = LaunchRound(round, batch, options.max_draft,
                                            {.num_threads = num_blocks == 7 ? 32 : 128,
                                             .schedule_seed = options.seed,
                                             .num_blocks = num_blocks});
    REQUIRE(result.error == "");
    REQUIRE(result.counts_are_back);
    CHECK(result.answers == expected);
  }
}

}  // namespace specd
