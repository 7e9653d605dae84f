// Backends, given tasks that leave draft tokens, positions and counts to them.
#include "tests/kernels/open_rounds.h"

#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace specd {
namespace {

TEST_SUITE("invariance") {
  TEST_CASE("rounds with something left open, on the CPU") {
    std::vector<std::unique_ptr<CpuBackend>> backends;
    std::vector<Processor> processors;
    for (const CpuTarget target : {CpuTarget::kBaseline, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
      if (!CpuTargetIsSupported(target)) continue;
      for (const int32_t threads : {1, 3}) {
        backends.push_back(std::make_unique<CpuBackend>(target));
        REQUIRE(backends.back()->Prepare({2 * kTileSize + 77, 24, 4, threads}).ok());
        const auto run = [backend = backends.back().get()](RoundCase& round, RoundBatch batch) {
          REQUIRE(backend->Run(batch).ok());
          return AnswersOf(round, batch.num_tasks);
        };
        processors.push_back({fmt::format("{} threads", threads), run});
      }
    }
    for (RoundCase::Options options : KindsOfOpenRounds()) {
      CAPTURE(options.seed);
      options.max_draft = 4;
      CheckOpenRounds(options, processors);
    }
  }
}

}  // namespace
}  // namespace specd
