// Whole rounds of specd-bench gpu, over a fake driver. They are a backend's rounds over the rows of
// the launches, and their answers are checked.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/tools/gpu_suite_run.h"

namespace specd::bench {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("specd-bench gpu: whole rounds run over the rows on the device, cold ones in turn") {
    ProbedGpu gpu;
    // Ten rounds: four such caches are 8.9 of a round's 3 x 3 rows of 5000 bytes, and one more.
    gpu.devices[0].l2_bytes = 100'000;
    const void* launched = nullptr;
    std::vector<uint32_t> wholes;  // the first row of each
    bool is_same_memory = true;
    gpu.after_round = [&](const RoundBatch& batch) { launched = batch.target.data; };
    const SuiteRun run = RunSuite(OnlyCase("greedy"), &gpu, [&] {
      gpu.after_round = [&](const RoundBatch& batch) {
        is_same_memory = is_same_memory && batch.target.data == launched;
        wholes.push_back(batch.tasks[0].draft.target_rows[0]);
      };
    });
    CHECK(run.status.message() == "");
    REQUIRE(run.measurements.size() == 2);
    CHECK(is_same_memory);
    const auto num_cold = static_cast<size_t>(10 + run.measurements[0].whole_us.num_samples);
    const auto num_warm = static_cast<size_t>(1 + run.measurements[1].whole_us.num_samples);
    REQUIRE(wholes.size() == num_cold + num_warm);
    for (size_t i = 0; i < wholes.size(); ++i) {
      CHECK(wholes[i] == (i < num_cold ? i % 10 * 9 : 0));  // 3 x 3 rows each
    }
  }

  TEST_CASE("specd-bench gpu: a wrong answer to a whole round is found, at whichever it is") {
    for (const char* name : {"greedy", "block", "logprobs5", "flat_topp95"}) {
      for (const int after : {0, 3}) {  // untimed, and timed: there are two rounds
        CAPTURE(std::string(name));
        CAPTURE(after);
        ProbedGpu gpu;
        gpu.devices[0].l2_bytes = 1;
        int num_wholes = 0;
        const SuiteRun run = RunSuite(OnlyCase(name), &gpu, [&] {
          gpu.after_round = [&](const RoundBatch& batch) {
            if (num_wholes++ == after) ++batch.tokens[batch.tokens_stride];
          };
        });
        CHECK(Mentions(run.status, name));
        CHECK(Mentions(run.status, "as a whole, "));
        CHECK(Mentions(run.status, "sequence 1, place 0"));
        CHECK(run.measurements.empty());
        CHECK(IsEmpty(gpu));
      }
    }
  }

  TEST_CASE("specd-bench gpu: a backend that cannot be made, or prepared, is an error") {
    for (const char* call : {"UseDevice", "Allocate", "BeginCapture"}) {
      CAPTURE(std::string(call));
      ProbedGpu gpu;
      const SuiteRun run = RunSuite(OnlyCase("greedy"), &gpu, [&] { gpu.failing_call = call; });
      CHECK(Mentions(run.status, "greedy bf16"));
      CHECK(Mentions(run.status, call));
      CHECK(run.measurements.empty());
      CHECK(IsEmpty(gpu));
    }
  }
}

}  // namespace
}  // namespace specd::bench
