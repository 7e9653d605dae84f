// The rows that are read before the decision: every row that the decision can come to, and no other
// (docs/GPU.md). The task rows are counted by hand.
#include "kernels/bodies/read_ahead.h"

#include <doctest/doctest.h>

#include <vector>

namespace specd {
namespace {

using TaskRows = std::vector<int32_t>;

// A draft of three nodes. Its arrays have an entry for one node more, which no function may read.
struct ThreeNodes {
  ThreeNodes() {
    task.method = VerifyMethod::kToken;
    task.draft.num_nodes = 3;
    task.draft.tokens = tokens;
    task.draft.kinds = kinds;
  }
  TaskRows Read() const {
    TaskRows rows;
    for (int32_t task_row = 0; task_row < NumTaskRows(kNodesMax); ++task_row) {
      if (IsReadAhead(task, task_row)) rows.push_back(task_row);
    }
    return rows;
  }

  TokenId tokens[4] = {5, 6, 7, 8};
  DraftKind kinds[4] = {DraftKind::kSampled, DraftKind::kOneHot, DraftKind::kSampled,
                        DraftKind::kSampled};
  PlaceEdits places[5];
  Task task;
};

TEST_SUITE("unit") {
  TEST_CASE("a chain: the rows of places, and those of sampled tokens if the method reads q") {
    ThreeNodes chain;
    for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
      chain.task.method = method;
      CHECK(chain.Read() == TaskRows{0, 1, 2, 4, 5, 6});
    }
    for (const VerifyMethod method : {VerifyMethod::kGreedy, VerifyMethod::kExactMatch}) {
      chain.task.method = method;
      CHECK(chain.Read() == TaskRows{0, 2, 4, 6});
    }
    chain.task.draft.num_nodes = 0;
    CHECK(chain.Read() == TaskRows{0});
  }

  TEST_CASE("a -1 ends the rows of its path, if the tokens are known") {
    ThreeNodes draft;
    draft.tokens[1] = kNoToken;
    CHECK(draft.Read() == TaskRows{0, 1, 2});
    draft.task.draft.tokens = nullptr;
    CHECK(draft.Read() == TaskRows{0, 1, 2, 4, 5, 6});
    // Nodes 1 and 2 follow node 0, so only the place after node 1 is behind the -1.
    const int32_t parents[] = {kRoot, 0, 0, 2};
    draft.task.draft.tokens = draft.tokens;
    draft.task.draft.parents = parents;
    CHECK(draft.Read() == TaskRows{0, 1, 2, 5, 6});
  }

  TEST_CASE("a row whose answer is known without it is not read") {
    ThreeNodes draft;
    draft.task.places = draft.places;
    draft.places[2].forced = 9;
    CHECK(draft.Read() == TaskRows{0, 1, 2, 5, 6});
    draft.task.draft_edits = true;  // then the drafter's row is forced too
    CHECK(draft.Read() == TaskRows{0, 1, 2, 6});
    draft.task.places = nullptr;
    const float weights[] = {1, 1, 1, 1};
    draft.task.draft.draft_weights = weights;
    CHECK(draft.Read() == TaskRows{0, 2, 4, 6});
    draft.task.draft.target_argmax = draft.tokens;
    CHECK(draft.Read() == TaskRows{});
  }

  TEST_CASE("scores read nothing ahead, and a draft to be sampled only its row") {
    ThreeNodes draft;
    draft.task.kind = TaskKind::kScore;
    CHECK(draft.Read() == TaskRows{});
    draft.task.kind = TaskKind::kSampleDraft;
    CHECK(draft.Read() == TaskRows{0});
    draft.task.places = draft.places;
    draft.places[0].forced = 9;
    CHECK(draft.Read() == TaskRows{});
  }
}

}  // namespace
}  // namespace specd
