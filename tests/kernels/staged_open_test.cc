// Rounds that are staged before the ones before them have run, so that only the device knows what
// they begin with.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/open_rounds.h"
#include "tests/kernels/staged_case.h"

namespace specd {
namespace {

// A staged round, and what has to stay where it is until it is collected.
struct StagedOpen {
  StagedOpen(SlotRounds* rounds, ImportedMemory* imported) : memory(rounds->options()) {
    expected = ScalarAnswers(rounds->round(), rounds->Known());
    rounds->Commit();
    batch = rounds->Open(&memory);
    round = rounds->TakeRound();
    batch.slots = {};  // the backend has its own
    batch.target = imported->Tensor(batch.target, 3);
    batch.draft = imported->Tensor(batch.draft, 5);
    batch.mask = imported->Mask(batch.mask, rounds->options().vocab_size);
    batch.draft_tokens.ids = imported->Ids(memory.drafts.data(), memory.drafts.size());
    batch.draft_tokens.space = MemorySpace::kDevice;
    for (int32_t i = 0; i < batch.num_next_tokens; ++i) {
      TokenId* const ids = batch.next_tokens[i].ids;
      arrays.push_back({imported->Ids(ids, round->next_tokens(i).size()), MemorySpace::kDevice});
    }
    batch.next_tokens = arrays.data();
  }
  StagedOpen(const StagedOpen&) = delete;
  StagedOpen& operator=(const StagedOpen&) = delete;

  void CheckAnswers() const {
    const std::vector<std::string> answers = AnswersOf(*round, batch.num_tasks);
    for (size_t i = 0; i < expected.size(); ++i) REQUIRE(answers[i] == expected[i]);
  }

  SlotMemory memory;
  std::vector<TokenArray> arrays;
  std::unique_ptr<RoundCase> round;
  RoundBatch batch;
  std::vector<std::string> expected;
};

TEST_SUITE("invariance") {
  TEST_CASE("three rounds staged ahead of the first one's answers are those of a host that waits") {
    for (RoundCase::Options options : KindsOfOpenRounds()) {
      CAPTURE(options.seed);
      options.batch = 12;
      const auto num_slots = static_cast<uint32_t>(2 * options.batch);
      StagingRig rig(options, num_slots);
      const auto graph = rig.Enqueue(4);
      SlotRounds rounds(options, true);
      for (int repeat = 0; repeat < 2; ++repeat) {
        rig.gpu.Replay(graph);  // there is none
        std::vector<std::unique_ptr<StagedOpen>> staged;
        for (int i = 0; i < 3; ++i) {
          rounds.Next();
          staged.push_back(std::make_unique<StagedOpen>(&rounds, &rig.imported));
          REQUIRE_OK(rig.backend.Stage(staged.back()->batch));
        }
        for (const auto& round : staged) {
          rig.gpu.Replay(graph);
          REQUIRE(rig.Collect());
          round->CheckAnswers();
        }
      }
      CHECK(rounds.num_continued() > 0);
      CHECK(rig.gpu.num_resolves > 0);
    }
  }
}

}  // namespace
}  // namespace specd
