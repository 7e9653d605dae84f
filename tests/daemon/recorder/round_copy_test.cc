// The copy of a round whose drafts are trees by slot: only the processor's record has their
// parents.
#include "daemon/recorder/round_copy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/core/decision.h"
#include "kernels/core/round.h"

namespace specd::test {
namespace {

constexpr int32_t kTasks = 8;
constexpr int32_t kNodes = 32;
constexpr int32_t kPlaces = kNodes + 1;
constexpr size_t kGuardBytes = 4096;

// Tasks whose trees the memory of slots has, and what a processor records of them.
struct TreeRound {
  TreeRound() : tasks(kTasks), outcomes(kTasks), decisions(kTasks * kPlaces), rows(kPlaces) {
    std::mt19937 random(3);
    std::iota(rows.begin(), rows.end(), 100);
    for (int32_t t = 0; t < kTasks; ++t) {
      Task& task = tasks[size_t(t)];
      task.drafts_by_slot = task.parents_by_slot = true;
      task.slot = t;
      task.draft = {.num_nodes = kNodes, .target_rows = rows.data(), .draft_rows = rows.data()};
      for (int32_t i = 0; i < kPlaces; ++i) {
        PlaceDecision& place = decisions[size_t(t * kPlaces + i)];
        place.position = uint32_t(5 + i);
        if (i == kNodes) continue;
        place.node = TokenId(random() % 50);
        place.parent = int32_t(random() % uint32_t(i + 1)) - 1;
      }
    }
    batch.tasks = tasks.data();
    batch.num_tasks = kTasks;
    batch.outcomes = outcomes.data();
    batch.decisions = decisions.data();
    batch.decisions_stride = kPlaces;
  }
  std::vector<Task> tasks;
  std::vector<TaskOutcome> outcomes;
  std::vector<PlaceDecision> decisions;
  std::vector<uint32_t> rows;  // by place
  RoundBatch batch;
};

TEST_SUITE("unit") {
  TEST_CASE("the copy of trees by slot was larger than what was measured for it") {
    TreeRound made;
    const RanRound round{.batch = made.batch, .status = RoundStatus::kOk, .sequences = {}};
    std::vector<uint32_t> all(kTasks);
    std::iota(all.begin(), all.end(), 0u);
    const RoundCopier::Selection selection{.tasks = all, .max_answers = 1};
    RoundCopier copier({.vocab_size = 50, .max_batch = kTasks, .max_draft = kNodes});
    const uint64_t measured = copier.Measure(round, selection);
    std::vector<std::byte> memory(measured + 64 + kGuardBytes, std::byte{0xAB});
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    std::byte* const begin = memory.data() + (64 - address % 64) % 64;
    const RoundCopy* const copy = copier.Copy(round, selection, begin);
    REQUIRE(copy != nullptr);
    const auto* const answers = reinterpret_cast<const std::byte*>(copy->answers.data());
    CHECK(answers + sizeof(TraceAnswer) <= begin + measured);
    CHECK(std::all_of(begin + measured, memory.data() + memory.size(),
                      [](std::byte byte) { return byte == std::byte{0xAB}; }));
    for (int32_t t = 0; t < kTasks; ++t) {
      const Draft& draft = copy->tasks[size_t(t)].task.draft;
      for (int32_t i = 0; i < kNodes; ++i) {
        const PlaceDecision& place = made.decisions[size_t(t * kPlaces + i)];
        CHECK(draft.tokens[i] == place.node);
        CHECK(draft.parents[i] == place.parent);
        CHECK(draft.draft_rows[i] == uint32_t(101 + place.parent));
      }
      CHECK_FALSE(copy->tasks[size_t(t)].task.parents_by_slot);
    }
  }

  TEST_CASE("a tree by slot that no processor recorded has no draft rows by node") {
    TreeRound made;
    made.batch.decisions = nullptr;
    const RanRound round{.batch = made.batch, .status = RoundStatus::kOk, .sequences = {}};
    const uint32_t first = 0;
    const RoundCopier::Selection selection{.tasks = {&first, 1}};
    RoundCopier copier({.vocab_size = 50, .max_batch = kTasks, .max_draft = kNodes});
    std::vector<std::byte> memory(copier.Measure(round, selection) + 64);
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    const RoundCopy* const copy =
        copier.Copy(round, selection, memory.data() + (64 - address % 64) % 64);
    REQUIRE(copy != nullptr);
    CHECK(copy->tasks[0].task.draft.parents == nullptr);
    CHECK(copy->tasks[0].task.draft.draft_rows == nullptr);
  }
}

}  // namespace
}  // namespace specd::test
