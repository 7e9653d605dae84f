// The cut of a round: what a task's rows count, and where a piece ends.
#include <doctest/doctest.h>

#include <vector>

#include "speculative/round/round_pieces.h"

namespace specd {
namespace {

constexpr int32_t kVocab = 1000;

// The tasks of each piece of a round of these tasks; a task that is cut has a piece of its own.
std::vector<int32_t> PiecesOf(const std::vector<Task>& tasks, const PieceBound& bound,
                              MemorySpace space = MemorySpace::kHost,
                              MemorySpace draft_space = MemorySpace::kDevice) {
  RoundBatch batch;
  batch.target.vocab_size = kVocab;
  batch.target.space = space;
  batch.draft.space = draft_space;
  batch.tasks = tasks.data();
  batch.num_tasks = static_cast<int32_t>(tasks.size());
  RoundPieces pieces(bound);
  pieces.Begin(batch);
  std::vector<int32_t> sizes;
  while (!pieces.done()) {
    sizes.push_back(pieces.Next().num_tasks);
    pieces.Advance();
  }
  return sizes;
}

Task WithDraft(int32_t num_nodes) {
  Task task;
  task.draft.num_nodes = num_nodes;
  return task;
}

using Sizes = std::vector<int32_t>;

TEST_SUITE("unit") {
  TEST_CASE("scores were not counted, so a piece was a hundred times its bound") {
    // One row of plain sampling is one pass. With its own score, three best ids and two chosen ones
    // the row is read for p, for the mass, for the own rank, once for the best, and once for each
    // chosen id: six passes.
    const PieceBound bound = {.work_max = 6 * kVocab};
    std::vector<Task> tasks(6, WithDraft(0));
    CHECK(PiecesOf(tasks, bound) == Sizes{6});
    for (Task& task : tasks) task.scores = {.enabled = true, .num_top = 3, .num_chosen = 2};
    CHECK(PiecesOf(tasks, bound) == Sizes{1, 1, 1, 1, 1, 1});
    for (Task& task : tasks) task.scores = {.enabled = true};
    CHECK(PiecesOf(tasks, bound) == Sizes{2, 2, 2});
  }

  TEST_CASE("calls count their rows: a score its ids, a draw its children") {
    const PieceBound bound = {.work_max = 12 * kVocab};
    Task score = WithDraft(2);  // two ids of two passes
    score.kind = TaskKind::kScore;
    score.scores = {.enabled = true};
    CHECK(PiecesOf(std::vector<Task>(6, score), bound) == Sizes{3, 3});
    Task draw = WithDraft(0);
    draw.kind = TaskKind::kSampleDraft;
    draw.num_children = 4;
    CHECK(PiecesOf(std::vector<Task>(12, draw), bound) == Sizes{12});
    draw.sampling = DraftSampling::kWithoutReplacement;  // a pass for each child
    CHECK(PiecesOf(std::vector<Task>(6, draw), bound) == Sizes{3, 3});
  }

  TEST_CASE("a row of the host counts more where it is copied to a device first") {
    const PieceBound bound = {.work_max = 10 * kVocab, .host_row_factor = 5};
    const std::vector<Task> tasks(10, WithDraft(0));
    CHECK(PiecesOf(tasks, bound, MemorySpace::kDevice) == Sizes{10});
    CHECK(PiecesOf(tasks, bound, MemorySpace::kHost) == Sizes{2, 2, 2, 2, 2});
  }

  TEST_CASE("a draft row of the host counts as one of the target does") {
    const PieceBound bound = {.work_max = 10 * kVocab, .host_row_factor = 5};
    const uint32_t draft_rows[] = {0};
    std::vector<Task> tasks(4, WithDraft(0));
    for (Task& task : tasks) task.draft.draft_rows = draft_rows;
    CHECK(PiecesOf(tasks, bound, MemorySpace::kDevice, MemorySpace::kDevice) == Sizes{4});
    CHECK(PiecesOf(tasks, bound, MemorySpace::kDevice, MemorySpace::kHost) == Sizes{2, 2});
    CHECK(PiecesOf(tasks, bound, MemorySpace::kHost, MemorySpace::kHost) == Sizes{1, 1, 1, 1});
  }

  TEST_CASE("a device was left idle by pieces of a task or two") {
    const PieceBound bound = {.work_max = kVocab, .tasks_min = 3};
    CHECK(PiecesOf(std::vector<Task>(3, WithDraft(5)), bound) == Sizes{3});
    CHECK(PiecesOf(std::vector<Task>(7, WithDraft(5)), bound) == Sizes{3, 3, 1});
  }

  TEST_CASE("argmax ids read no row, and a task beyond the bound runs alone") {
    const int32_t argmax[] = {1};
    std::vector<Task> tasks(4, WithDraft(0));
    tasks[1] = WithDraft(20);
    tasks[2].draft.target_argmax = argmax;
    CHECK(PiecesOf(tasks, {.work_max = 3 * kVocab}) == Sizes{1, 1, 2});
  }
}

}  // namespace
}  // namespace specd
