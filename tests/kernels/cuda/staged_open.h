// StagedOpen stages a round before the rounds before it have run, for tests in which only the
// device knows the start of a round.
//
//   SlotRounds rounds(options, true);
//   rounds.Next();
//   StagedOpen staged(&rounds, &memory_of_the_device);
//   REQUIRE_OK(backend.Stage(staged.batch));  // and once it has been collected
//   staged.CheckAnswers();
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/cuda/staged_case.h"
#include "tests/kernels/warps/open_rounds.h"

namespace specd {

// A staged round, and the memory that must not change until Collect.
struct StagedOpen {
  StagedOpen(SlotRounds* rounds, MovedMemory* device) : memory(rounds->options()) {
    expected = ScalarAnswers(rounds->round(), rounds->Known());
    rounds->Commit();
    batch = rounds->Open(&memory);
    round = rounds->TakeRound();
    batch.slots = {};  // the backend has slots of its own
    arrays = MoveToDevice(*round, device, &batch);
    batch.draft_tokens.ids = device->Ids(memory.drafts.data(), memory.drafts.size());
    batch.draft_tokens.space = MemorySpace::kDevice;
    MoveTree(device);
  }
  StagedOpen(const StagedOpen&) = delete;
  StagedOpen& operator=(const StagedOpen&) = delete;

  void MoveTree(MovedMemory* device) {
    const auto move = [device](NodeRows* rows, auto& values) {
      if (values.empty()) return;
      const size_t num_ids = values.size() * sizeof(values[0]) / sizeof(TokenId);
      rows->data = device->Ids(reinterpret_cast<TokenId*>(values.data()), num_ids);
      rows->space = MemorySpace::kDevice;
    };
    move(&batch.draft_tree.parents, memory.parents);
    move(&batch.draft_tree.next_child, memory.next_child);
    move(&batch.draft_tree.next_sibling, memory.next_sibling);
  }

  // Returns the number of answers.
  int CheckAnswers() const {
    const std::vector<std::string> answers = AnswersOf(*round, batch.num_tasks);
    for (size_t i = 0; i < expected.size(); ++i) REQUIRE(answers[i] == expected[i]);
    return batch.num_tasks;
  }

  SlotMemory memory;
  std::vector<SlotOutput> arrays;
  std::unique_ptr<RoundCase> round;
  RoundBatch batch;
  std::vector<std::string> expected;
};

}  // namespace specd
