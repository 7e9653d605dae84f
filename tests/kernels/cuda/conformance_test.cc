// Rounds and transforms, as emulated blocks, against the scalar team. The tests take every size of
// the contract, element type, kind of rows and size of a block, and many schedules of each.
// RoundCase makes the content of a round. deferred_conformance_test.cc has the tasks that a round
// leaves to larger teams. resolve_test.cc has the facts that a round leaves to the device.
// staged_conformance_test.cc has rounds in an engine's graph.
//
// The suite "conformance" is a part that is quick: every size and every block size, but not each
// with each. The suite "long" is the whole grid.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/bodies/transform.h"
#include "tests/kernels/cuda/conformance_grid.h"
#include "tests/kernels/warps/open_rounds.h"
#include "tests/support/grid_size.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr int32_t kMaxDraft = 3;

// A round and its right answers.
struct Case {
  Case(const Shape& the_shape, int32_t the_vocab_size, int32_t batch)
      : shape(the_shape),
        vocab_size(the_vocab_size),
        round(OptionsOf(shape, vocab_size, batch, kMaxDraft)),
        expected(ScalarAnswers(round)) {}

  void Check(const EmulationOptions& schedule) {
    INFO(NameOf(shape, vocab_size, schedule));
    const LaunchResult result = LaunchRound(round, kMaxDraft, schedule);
    REQUIRE(result.error == "");
    for (size_t i = 0; i < expected.size(); ++i) REQUIRE(result.answers[i] == expected[i]);
    REQUIRE(result.counts_are_back);
  }

  const Shape& shape;
  const int32_t vocab_size;
  RoundCase round;
  const std::vector<std::string> expected;
};

// Every shape of one size, under `num_schedules` each.
void CheckRounds(int32_t vocab_size, int32_t batch, int32_t num_schedules) {
  int32_t next = vocab_size % kBlockSizes;
  for (const Shape& shape : kShapes) {
    Case test(shape, vocab_size, batch);
    for (int32_t i = 0; i < num_schedules; ++i) test.Check(ScheduleAt(next++, 7));
  }
}

// Three rounds of every shape whose tasks leave something to the device, one schedule after the
// other.
void CheckOpenRoundsOf(int32_t vocab_size, int32_t batch, int32_t num_schedules) {
  int32_t next = vocab_size % kBlockSizes;
  for (const Shape& shape : kShapes) {
    std::vector<RoundProcessor> processors;
    for (int32_t i = 0; i < num_schedules; ++i) {
      const EmulationOptions schedule = ScheduleAt(next++, 13);
      processors.push_back({NameOf(shape, vocab_size, schedule),
                            [schedule](RoundCase& round, const RoundBatch& open) {
                              const LaunchResult result =
                                  LaunchRound(round, open, kMaxDraft, schedule);
                              REQUIRE(result.error == "");
                              REQUIRE(result.counts_are_back);
                              return result.answers;
                            }});
    }
    CheckOpenRounds(OptionsOf(shape, vocab_size, batch, kMaxDraft), processors);
  }
}

// Rows that a transform meets, degenerate ones among them; none but the first is aligned.
class TransformCase {
 public:
  TransformCase(DType dtype, int32_t vocab_size)
      : vocab_size_(vocab_size),
        rows_({.dtype = dtype,
               .vocab_size = vocab_size,
               .num_rows = kNumRows,
               .padding = 3,
               .offset = 1}) {
    std::mt19937_64 random(static_cast<uint64_t>(vocab_size));
    for (int64_t row = 0; row < kNumRows; ++row) {
      std::vector<double> values = RandomLogits(random, vocab_size);
      if (row == 2) values[random() % values.size()] = NAN;
      if (row == 3) values[random() % values.size()] = INFINITY;
      if (row == 4) std::fill(values.begin(), values.end(), -INFINITY);
      rows_.Set(row, values);
    }
    for (int32_t i = 0; i < kNumTransforms; ++i) {
      RowTransform transform;
      transform.row = static_cast<uint32_t>(i) % kNumRows;
      transform.scale = 0.5f + 0.5f * static_cast<float>(i % 3);
      if (i % 2 == 1) transform.filters.top_k = 50;
      if (i % 3 == 1) transform.filters.top_p = kTopPOff / 8 * 7;
      if (i % 4 == 3) transform.filters.min_p = -6;
      transform.filters.joint = i % 5 == 1;
      transform.as_logits = i % 4 == 2;
      transforms_.push_back(transform);
      expected_.push_back(Run(i, [](const auto& body) {
        ScalarTeam<CpuTarget::kBaseline> team;
        return body(team);
      }));
    }
  }

  static constexpr int32_t kNumTransforms = 12;

  void Check(int32_t i, const EmulationOptions& schedule) {
    INFO("transform ", i, ", V = ", vocab_size_, ", threads ", schedule.num_threads, ", seed ",
         schedule.schedule_seed);
    const std::vector<uint32_t> result = Run(i, [&](const auto& body) {
      std::vector<OutcomeStatus> statuses(schedule.num_threads);
      const std::string error = RunEmulatedBlock(schedule, [&](EmulatedThread thread) {
        EmulatedTeam team(thread);
        statuses[thread.warp() * 32 + thread.lane()] = body(team);
      });
      REQUIRE(error == "");
      for (const OutcomeStatus status : statuses) REQUIRE(status == statuses[0]);
      return statuses[0];
    });
    REQUIRE(result == expected_[i]);
  }

 private:
  static constexpr int64_t kNumRows = 5;

  // The bits of the row that transform i makes, and then its status.
  template <typename Runner>
  std::vector<uint32_t> Run(int32_t i, const Runner& run) {
    std::vector<float> out(vocab_size_, -5);
    RowTransform transform = transforms_[i];
    transform.out = out.data();
    const OwnedWorkspace workspace(vocab_size_);
    const OutcomeStatus status = run([&](auto& team) {
      return TransformRow(team, rows_.row(transform.row), transform, workspace->target);
    });
    std::vector<uint32_t> bits;
    for (const float x : out) bits.push_back(BitsOf(x));
    bits.push_back(static_cast<uint32_t>(status));
    return bits;
  }

  const int32_t vocab_size_;
  RowMatrix rows_;
  std::vector<RowTransform> transforms_;
  std::vector<std::vector<uint32_t>> expected_;
};

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// Under `num_schedules`, which go round the transforms. Returns the number after the last schedule.
int32_t CheckTransforms(DType dtype, int32_t vocab_size, int32_t first, int32_t num_schedules) {
  TransformCase test(dtype, vocab_size);
  for (int32_t i = first; i < first + num_schedules; ++i) {
    EmulationOptions schedule = ScheduleAt(i, 11);
    schedule.num_blocks = 1;  // a block for each row
    test.Check(i % TransformCase::kNumTransforms, schedule);
  }
  return first + num_schedules;
}

TEST_SUITE("conformance") {
  TEST_CASE("rounds of every small size, under 50 schedules each") {
    int32_t next = 0;
    for (const int32_t vocab_size : kSmallSizes) {
      std::vector<std::unique_ptr<Case>> cases;
      for (const Shape& shape : kShapes) {
        cases.push_back(std::make_unique<Case>(shape, vocab_size, 2));
      }
      for (int32_t i = 0; i < kSmallSchedules; ++i, ++next) {
        cases[static_cast<size_t>(i % kNumShapes)]->Check(QuickScheduleAt(next, 3));
      }
    }
  }

  TEST_CASE("rounds of every large size, under three schedules each, of three shapes") {
    int32_t next = 0;
    for (const int32_t vocab_size : kLargeSizes) {
      for (int32_t i = 0; i < kLargeSchedules; ++i, ++next) {
        Case test(kShapes[next % kNumShapes], vocab_size, vocab_size > 100000 ? 1 : 4);
        test.Check(ScheduleAt(next * 7, 5));
      }
    }
  }

  TEST_CASE("rounds that leave something to the device, of sizes around a tile") {
    const int32_t num_schedules = GridSize({.full = 3, .sanitized = 1});
    for (const int32_t vocab_size : {7, 300, 2049}) CheckOpenRoundsOf(vocab_size, 6, num_schedules);
  }

  TEST_CASE("transforms of every size") {
    int32_t next = 0;
    for (const int32_t vocab_size : kSmallSizes) {
      for (const DType dtype : kDTypes) next = CheckTransforms(dtype, vocab_size, next, 17);
    }
    for (const int32_t vocab_size : kLargeSizes) {
      next = CheckTransforms(kDTypes[next % 3], vocab_size, next, kLargeSchedules + 1);
    }
  }
}

TEST_SUITE("long") {
  // Two cases, so that neither comes near the time that a test has.
  TEST_CASE("the whole grid: rounds within a step of a tile") {
    for (const int32_t vocab_size : kSmallSizes) {
      if (vocab_size <= kLanes) CheckRounds(vocab_size, 12, kSmallSchedules);
    }
  }
  TEST_CASE("the whole grid: rounds of up to two tiles") {
    for (const int32_t vocab_size : kSmallSizes) {
      if (vocab_size > kLanes) CheckRounds(vocab_size, 12, kSmallSchedules);
    }
  }
  TEST_CASE("the whole grid: rounds of large sizes") {
    for (const int32_t vocab_size : kLargeSizes) CheckRounds(vocab_size, 12, kLargeSchedules);
  }
  TEST_CASE("the whole grid: rounds that leave something to the device") {
    for (const int32_t vocab_size : kSmallSizes) CheckOpenRoundsOf(vocab_size, 12, 12);
    CheckOpenRoundsOf(20000, 12, kLargeSchedules);
  }
  TEST_CASE("the whole grid: transforms") {
    int32_t next = 0;
    for (const DType dtype : kDTypes) {
      for (const int32_t vocab_size : kSmallSizes) {
        next = CheckTransforms(dtype, vocab_size, next, 4 * kSmallSchedules);
      }
      for (const int32_t vocab_size : kLargeSizes) {
        next = CheckTransforms(dtype, vocab_size, next, kLargeSchedules * 4);
      }
    }
  }
}

}  // namespace
}  // namespace specd
