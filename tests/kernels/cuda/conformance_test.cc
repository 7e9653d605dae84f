// Rounds and transforms, as emulated blocks, against the scalar team. The tests take every size of
// the contract, element type, kind of rows and size of a block, and many schedules of each, but not
// each with each. RoundCase makes the content of a round. The tasks that a round leaves to larger
// teams run by themselves too, in teams from a warp to the eight blocks of 256 threads that form a
// cluster on a device (kernels/cuda/deferred_kernel.cu). resolve_test.cc has the facts that a round
// leaves to the device. staged_conformance_test.cc has rounds in an engine's graph that leave them.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/kernels/cuda/conformance_grid.h"
#include "tests/kernels/cuda/run_backend.h"
#include "tests/kernels/cuda/run_round.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr int32_t kMaxDraft = 3;

// The cluster of a device's last launch is one team and its barrier one barrier: here it is one
// block.
constexpr int32_t kClusterThreads = 8 * 256;

enum class Launches { kAll, kDeferred };

// A round and its right answers.
struct Case {
  Case(const Shape& the_shape, int32_t the_vocab_size, int32_t batch)
      : shape(the_shape),
        vocab_size(the_vocab_size),
        round(OptionsOf(shape, vocab_size, batch, kMaxDraft)),
        expected(ScalarAnswers(round)) {}

  void Check(Launches launches, const EmulationOptions& schedule) {
    INFO(NameOf(shape, vocab_size, schedule));
    const LaunchResult result = launches == Launches::kAll
                                    ? LaunchRound(round, kMaxDraft, schedule)
                                    : LaunchDeferred(round, kMaxDraft, schedule);
    REQUIRE(result.error == "");
    for (size_t i = 0; i < expected.size(); ++i) REQUIRE(result.answers[i] == expected[i]);
    REQUIRE(result.counts_are_back);
  }

  const Shape& shape;
  const int32_t vocab_size;
  RoundCase round;
  const std::vector<std::string> expected;
};

EmulationOptions ClusterAt(int32_t i, uint64_t seed) {
  EmulationOptions schedule = ScheduleAt(i, seed);
  schedule.num_threads = kClusterThreads;
  schedule.num_blocks = 1 + i % 3;
  return schedule;
}

void CheckSmallSizes(Launches launches, uint64_t seed) {
  int32_t next = 0;
  for (const int32_t vocab_size : kSmallSizes) {
    std::vector<std::unique_ptr<Case>> cases;
    for (const Shape& shape : kShapes) {
      cases.push_back(std::make_unique<Case>(shape, vocab_size, 2));
    }
    for (int32_t i = 0; i < kSmallSchedules; ++i, ++next) {
      const bool is_cluster = launches == Launches::kDeferred && i == vocab_size % kSmallSchedules;
      cases[static_cast<size_t>(next % kNumShapes)]->Check(
          launches, is_cluster ? ClusterAt(next, seed) : QuickScheduleAt(next, seed));
    }
  }
}

void CheckLargeSizes(Launches launches, uint64_t seed) {
  int32_t next = 0;
  for (const int32_t vocab_size : kLargeSizes) {
    for (int32_t i = 0; i < kLargeSchedules; ++i, ++next) {
      const bool is_small = launches == Launches::kAll && vocab_size <= 100000;
      Case test(kShapes[next % kNumShapes], vocab_size, is_small ? 4 : 1);
      const bool is_cluster = launches == Launches::kDeferred && i == 0;
      test.Check(launches, is_cluster ? ClusterAt(next, seed) : ScheduleAt(next * 7, seed));
    }
  }
}

TEST_SUITE("conformance") {
  TEST_CASE("rounds of every small size, under 50 schedules each") {
    CheckSmallSizes(Launches::kAll, 3);
  }

  TEST_CASE("rounds of every large size, under three schedules each, of three shapes") {
    CheckLargeSizes(Launches::kAll, 5);
  }

  TEST_CASE("deferred tasks of every small size, under 50 schedules each, a cluster among them") {
    CheckSmallSizes(Launches::kDeferred, 17);
  }

  TEST_CASE("deferred tasks of every large size, under three schedules each, one a cluster") {
    CheckLargeSizes(Launches::kDeferred, 19);
  }

  TEST_CASE("transforms of every size, by blocks of several sizes") {
    constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
    int32_t next = 0;
    for (const VocabSizes sizes : {kSmallSizes, kLargeSizes}) {
      const bool is_small = sizes.data() == kSmallSizes.data();
      for (const int32_t vocab_size : sizes) {
        const RowMatrix rows = TransformRows(kDTypes[next % 3], vocab_size);
        const std::vector<RowTransform> transforms = MixedTransforms(is_small ? 12 : 4);
        CpuBackend cpu(CpuTarget::kBaseline);
        REQUIRE(cpu.Prepare({vocab_size, 12, 0}).ok());
        const auto expected = OutputsOf(cpu, rows.view(), transforms);
        FakeGpu gpu;
        CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), int64_t{1} << 30);
        REQUIRE(backend.Prepare({vocab_size, 12, 0}).ok());
        for (int32_t i = 0; i < (is_small ? 5 : 1); ++i) {
          gpu.num_threads = ScheduleAt(next++ * 7, 0).num_threads;
          CAPTURE(vocab_size);
          CAPTURE(gpu.num_threads);
          const bool is_equal = OutputsOf(backend, rows.view(), transforms) == expected;
          REQUIRE(is_equal);  // a failure would print them
        }
      }
    }
  }
}

}  // namespace
}  // namespace specd
