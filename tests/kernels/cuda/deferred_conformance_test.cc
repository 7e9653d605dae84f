// Tasks that a round leaves to larger teams, as emulated blocks, against the scalar team. Every
// task of every shape runs at every size. The teams go from a warp to the eight blocks of 256
// threads that form a cluster on a device (kernels/cuda/deferred_kernel.cu). A cluster is one team
// and its barrier one barrier, so here it is one block of 2,048 threads.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/cuda/conformance_grid.h"
#include "tests/kernels/cuda/run_round.h"

namespace specd {
namespace {

constexpr int32_t kMaxDraft = 3;
constexpr int32_t kClusterThreads = 8 * 256;

class DeferredCase {
 public:
  DeferredCase(const Shape& shape, int32_t vocab_size, int32_t batch)
      : shape_(shape),
        vocab_size_(vocab_size),
        round_(OptionsOf(shape, vocab_size, batch, kMaxDraft)),
        expected_(ScalarAnswers(round_)) {}

  void Check(const EmulationOptions& schedule) {
    INFO(NameOf(shape_, vocab_size_, schedule));
    const LaunchResult result = LaunchDeferred(round_, kMaxDraft, schedule);
    REQUIRE(result.error == "");
    for (size_t i = 0; i < expected_.size(); ++i) REQUIRE(result.answers[i] == expected_[i]);
    REQUIRE(result.counts_are_back);
  }

 private:
  const Shape& shape_;
  const int32_t vocab_size_;
  RoundCase round_;
  const std::vector<std::string> expected_;
};

EmulationOptions ClusterAt(int32_t i, uint64_t seed) {
  EmulationOptions schedule = ScheduleAt(i, seed);
  schedule.num_threads = kClusterThreads;
  schedule.num_blocks = 1 + i % 3;
  return schedule;
}

TEST_SUITE("conformance") {
  TEST_CASE("deferred tasks of every small size, under 50 schedules each, a cluster among them") {
    int32_t next = 0;
    for (const int32_t vocab_size : kSmallSizes) {
      std::vector<std::unique_ptr<DeferredCase>> cases;
      for (const Shape& shape : kShapes) {
        cases.push_back(std::make_unique<DeferredCase>(shape, vocab_size, 2));
      }
      const int32_t first = next;
      for (; next < first + kSmallSchedules; ++next) {
        const bool is_cluster = next == first + vocab_size % kSmallSchedules;
        cases[static_cast<size_t>(next % kNumShapes)]->Check(
            is_cluster ? ClusterAt(next, 17) : QuickScheduleAt(next, 17));
      }
    }
  }

  TEST_CASE("deferred tasks of every large size, under three schedules each, one a cluster") {
    int32_t next = 0;
    for (const int32_t vocab_size : kLargeSizes) {
      for (int32_t i = 0; i < kLargeSchedules; ++i, ++next) {
        DeferredCase test(kShapes[next % kNumShapes], vocab_size, 1);
        test.Check(i == 0 ? ClusterAt(next, 19) : ScheduleAt(next * 7, 19));
      }
    }
  }
}

TEST_SUITE("long") {
  TEST_CASE("the whole grid: deferred tasks") {
    int32_t next = 0;
    for (const int32_t vocab_size : kSmallSizes) {
      for (const Shape& shape : kShapes) {
        DeferredCase test(shape, vocab_size, 6);
        for (int32_t i = 0; i < kSmallSchedules; ++i, ++next) {
          test.Check(i % 10 == 0 ? ClusterAt(next, 23) : ScheduleAt(next, 23));
        }
      }
    }
    for (const int32_t vocab_size : kLargeSizes) {
      for (const Shape& shape : kShapes) {
        DeferredCase test(shape, vocab_size, 4);
        for (int32_t i = 0; i < kLargeSchedules; ++i, ++next) {
          test.Check(i == 0 ? ClusterAt(next, 29) : ScheduleAt(next, 29));
        }
      }
    }
  }
}

}  // namespace
}  // namespace specd
