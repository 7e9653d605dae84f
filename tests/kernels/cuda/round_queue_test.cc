// Staged rounds over a fake driver. The work that was enqueued once runs again and again, as an
// engine replays a graph. Rounds are staged before a replay, during it, or not at all. The answers
// are those of the CPU over the same rows. round_queue_refusals_test.cc has the refusals.
#include "kernels/cuda/round_queue.h"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/cuda/staged_case.h"
#include "tests/support/mentions.h"
#include "tests/support/slot_rounds.h"

namespace specd {
namespace {

constexpr RoundCase::Options kMixed{
    .vocab_size = 1500, .batch = 24, .max_draft = 3, .dtype = DType::kFloat16, .seed = 90};

RoundCase::Options Sized(int32_t batch, uint64_t seed) {
  RoundCase::Options options = kMixed;
  options.batch = batch;
  options.seed = seed;
  return options;
}

TEST_SUITE("unit") {
  TEST_CASE("staged rounds of every size, one after another, have the answers of the CPU") {
    // Launches of any width take larger rounds, and smaller ones after larger ones.
    for (const int32_t wide_for : {1, 24}) {
      StagingRig rig(kMixed);
      const auto graph = rig.Enqueue(wide_for);
      uint64_t seed = 100;
      for (const int32_t batch : {24, 3, 24, 9, 1, 2, 17, 1, 24, 5, 4}) {
        CAPTURE(batch);
        RoundCase::Options options = Sized(batch, ++seed);
        options.dtype = static_cast<DType>(seed % 3);
        StagedCase round(options, &rig.imported);
        REQUIRE_OK(rig.backend.Stage(round.batch()));
        CHECK_FALSE(rig.Collect());
        rig.gpu.Replay(graph);
        REQUIRE(rig.Collect());
        round.CheckAnswers();
        CHECK_FALSE(rig.Collect());
      }
    }
  }

  TEST_CASE("several rounds in flight are done and answered in the order of Stage") {
    StagingRig rig(kMixed);
    const auto graph = rig.Enqueue(8);
    uint64_t seed = 200;
    std::vector<std::unique_ptr<StagedCase>> rounds;
    const auto stage = [&] {
      const auto batch = static_cast<int32_t>(1 + seed % 7);
      rounds.push_back(std::make_unique<StagedCase>(Sized(batch, ++seed), &rig.imported));
      return rig.backend.Stage(rounds.back()->batch());
    };
    size_t num_collected = 0;
    size_t num_done = 0;
    const auto collect = [&] {
      while (num_collected < num_done) {
        REQUIRE(rig.Collect());
        rounds[num_collected++]->CheckAnswers();
      }
      CHECK_FALSE(rig.Collect());
    };
    // In each pair the first number of rounds is staged. Then the graph is replayed the second
    // number of times.
    for (const auto& [num_staged, num_replays] : std::vector<std::pair<int, int>>{
             {4, 1}, {1, 2}, {2, 1}, {1, 4}, {0, 2}, {3, 1}, {1, 1}, {2, 4}, {4, 4}}) {
      for (int i = 0; i < num_staged; ++i) REQUIRE_OK(stage());
      for (int i = 0; i < num_replays; ++i) rig.gpu.Replay(graph);
      num_done = std::min(num_done + static_cast<size_t>(num_replays), rounds.size());
      collect();
    }
    CHECK(num_collected == rounds.size());
    for (int i = 0; i < kStagedRoundsMax; ++i) REQUIRE_OK(stage());
    const absl::Status refused = stage();
    rounds.pop_back();
    CHECK(refused.code() == absl::StatusCode::kUnavailable);
    CHECK(Mentions(refused, "4 rounds are staged and have not been collected"));
    // Also where they have been done.
    rig.gpu.Replay(graph);
    CHECK(stage().code() == absl::StatusCode::kUnavailable);
    rounds.pop_back();
    ++num_done;
    collect();
    REQUIRE_OK(stage());
    for (int i = 0; i < kStagedRoundsMax; ++i) rig.gpu.Replay(graph);
    num_done = rounds.size();
    collect();
  }

  TEST_CASE("a replay with nothing staged does nothing, and no later round is lost") {
    StagingRig rig(kMixed);
    const auto graph = rig.Enqueue(24);
    uint64_t seed = 300;
    for (const int num_idle : {2, 0, 1, 5, 0, 1}) {
      const int before = rig.gpu.num_launches;
      for (int i = 0; i < num_idle; ++i) rig.gpu.Replay(graph);
      CHECK(rig.gpu.fault.text() == "");
      CHECK(rig.gpu.num_launches == before);
      CHECK_FALSE(rig.Collect());
      StagedCase round(Sized(6, ++seed), &rig.imported);
      REQUIRE_OK(rig.backend.Stage(round.batch()));
      rig.gpu.Replay(graph);
      CHECK(rig.gpu.num_launches == before + 1);
      // The round does not run again, although it was not collected and its tasks still lie there.
      round.SpoilSlotOutputs();
      rig.gpu.Replay(graph);
      CHECK(rig.gpu.num_launches == before + 1);
      CHECK(round.AreSlotOutputsSpoiled());
      REQUIRE(rig.Collect());
    }
  }

  // Between any two launches of a replay: one that has begun without a round ends without one.
  TEST_CASE("a round that is staged in the middle of a replay is run by the next one, as a whole") {
    for (const bool is_another_before : {false, true}) {
      uint64_t seed = 400;
      StagingRig rig(kMixed);
      const auto graph = rig.Enqueue(8);
      for (size_t gap = 0; gap <= graph.size(); ++gap) {
        CAPTURE(gap);
        StagedCase first(Sized(7, ++seed), &rig.imported);
        StagedCase second(Sized(5, ++seed), &rig.imported);
        if (is_another_before) REQUIRE_OK(rig.backend.Stage(first.batch()));
        rig.gpu.Replay({graph.begin(), graph.begin() + static_cast<ptrdiff_t>(gap)});
        REQUIRE_OK(rig.backend.Stage(second.batch()));
        rig.gpu.Replay({graph.begin() + static_cast<ptrdiff_t>(gap), graph.end()});
        if (is_another_before) {
          REQUIRE(rig.Collect());
          first.CheckAnswers();
        }
        const bool in_time = gap == 0 && !is_another_before;
        REQUIRE(rig.Collect() == in_time);
        if (!in_time) {
          rig.gpu.Replay(graph);
          REQUIRE(rig.Collect());
        }
        second.CheckAnswers();
      }
    }
  }

  TEST_CASE("rounds are staged and collected by one thread while another one replays") {
    StagingRig rig(kMixed);
    const auto graph = rig.Enqueue(8);
    std::vector<std::unique_ptr<StagedCase>> rounds;
    for (uint64_t i = 0; i < 60; ++i) {
      rounds.push_back(std::make_unique<StagedCase>(
          Sized(static_cast<int32_t>(1 + i * 5 % 8), 500 + i), &rig.imported));
    }
    std::atomic<bool> is_over = false;
    std::thread engine([&] {
      while (!is_over) rig.gpu.Replay(graph);
    });
    size_t num_staged = 0;
    size_t num_collected = 0;
    bool is_well = true;
    while (is_well && num_collected < rounds.size()) {
      if (num_staged < rounds.size() && num_staged - num_collected < kStagedRoundsMax) {
        is_well = rig.backend.Stage(rounds[num_staged++]->batch()).ok();
      }
      const absl::StatusOr<bool> collected = rig.backend.Collect();
      is_well = is_well && collected.ok();
      if (is_well && *collected) ++num_collected;
    }
    is_over = true;
    engine.join();
    CHECK(rig.gpu.fault.text() == "");
    REQUIRE(num_collected == rounds.size());
    for (const auto& round : rounds) round->CheckAnswers();
  }

  TEST_CASE("two graphs take rounds in turn, and rounds that are run come in between") {
    StagingRig rig(kMixed);
    const auto small = rig.Enqueue(1);
    const auto large = rig.Enqueue(24);
    // What belongs to the device stays its own: a later round may not get that memory on the host.
    std::vector<std::unique_ptr<StagedCase>> rounds;
    for (uint64_t seed = 600; seed < 606; ++seed) {
      rounds.push_back(std::make_unique<StagedCase>(Sized(20, seed), &rig.imported));
      StagedCase& round = *rounds.back();
      RoundCase other(Sized(20, seed + 50));
      REQUIRE_OK(rig.backend.Stage(round.batch()));
      REQUIRE_OK(rig.backend.Run(other.All()));
      rig.gpu.Replay(seed % 2 == 0 ? small : large);
      REQUIRE(rig.Collect());
      round.CheckAnswers();
      CHECK(AnswersOf(other, 20) == CpuAnswers(Sized(20, seed + 50), InOrder(20)));
    }
  }

  TEST_CASE("rounds know the memory that is by slot, and none where there are no slots") {
    for (const uint32_t num_slots : {0u, 101u}) {
      StagingRig rig(kMixed, num_slots);
      SlotStates slots;
      rig.gpu.after_round = [&](const RoundBatch& batch) { slots = batch.slots; };
      StagedCase round(kMixed, &rig.imported);
      REQUIRE_OK(rig.backend.Stage(round.batch()));
      rig.gpu.Replay(rig.Enqueue(24));
      REQUIRE(rig.Collect());
      round.CheckAnswers();
      CHECK((slots.kept == nullptr) == (num_slots == 0));
      if (num_slots == 0) continue;
      CHECK(slots.recent_room == kStagedRoundsMax * (kMixed.max_draft + 1));
      REQUIRE(rig.gpu.allocations.contains(slots.kept));
      CHECK(rig.gpu.allocations[slots.kept]->size() * 8 >= num_slots * sizeof(uint32_t));
      REQUIRE(rig.gpu.allocations.contains(slots.recent));
      CHECK(rig.gpu.allocations[slots.recent]->size() * 8 >=
            num_slots * sizeof(TokenId) * static_cast<size_t>(slots.recent_room));
    }
  }

  TEST_CASE(
      "an engine may be capturing whenever rounds are enqueued, staged, collected or dropped") {
    FakeGpu gpu;
    ImportedMemory imported{&gpu};
    StagedCase round(Sized(5, 690), &imported);
    StagedCase dropped(Sized(5, 691), &imported);
    auto backend = std::make_unique<CudaBackend>(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
    REQUIRE_OK(backend->Prepare({kMixed.vocab_size, kMixed.batch, kMixed.max_draft, 1, 101}));
    gpu.caller_captures = true;
    int stream = 0;
    REQUIRE_OK(backend->EnqueueStaged(&stream, 8));
    REQUIRE_OK(backend->Stage(round.batch()));
    CHECK_FALSE(*backend->Collect());
    gpu.Replay(gpu.others_work[&stream]);  // of an earlier graph, while the next one is captured
    REQUIRE(*backend->Collect());
    round.CheckAnswers();
    REQUIRE_OK(backend->Stage(dropped.batch()));
    gpu.others_work.clear();
    backend.reset();
    CHECK(gpu.caller_spoiled_by == "");
    CHECK(gpu.allocations.empty());
    CHECK(gpu.pinned.empty());
  }

  TEST_CASE("another Prepare drops what is staged, and graphs from before it run no more") {
    StagingRig rig(kMixed);
    const auto old_graph = rig.Enqueue(24);
    StagedCase dropped(Sized(5, 701), &rig.imported);
    REQUIRE_OK(rig.backend.Stage(dropped.batch()));
    REQUIRE_OK(rig.backend.Prepare(rig.limits));
    CHECK_FALSE(rig.Collect());
    const auto graph = rig.Enqueue(24);
    StagedCase round(Sized(6, 702), &rig.imported);
    REQUIRE_OK(rig.backend.Stage(round.batch()));
    rig.gpu.Replay(graph);
    REQUIRE(rig.Collect());
    round.CheckAnswers();
    // Also where it fails, and all is given back before anything is taken.
    const size_t num_blocks = rig.gpu.allocations.size() + rig.gpu.pinned.size();
    rig.gpu.failing_call = "AllocatePinned";
    CHECK_FALSE(rig.backend.Prepare(rig.limits).ok());
    CHECK(rig.gpu.allocations.size() + rig.gpu.pinned.size() < num_blocks - 8);
    rig.gpu.failing_call = "";
    REQUIRE_OK(rig.backend.Prepare(rig.limits));
    rig.gpu.Replay(old_graph);
    CHECK(rig.gpu.fault.text().find("not in memory of the device") != std::string::npos);
  }

  TEST_CASE("what earlier rounds left in pinned memory is no round, and no answer") {
    StagingRig rig(kMixed);
    rig.gpu.reuses_pinned = true;
    for (uint64_t seed = 750; seed < 753; ++seed) {
      // As many as go round: each area has held a round, and not only the first.
      for (uint64_t i = 0; i <= kStagedRoundsMax; ++i) {
        StagedCase round(Sized(4, 10 * seed + i), &rig.imported);
        const int before = rig.gpu.num_launches;
        const auto graph = rig.Enqueue(4);
        rig.gpu.Replay(graph);
        REQUIRE_OK(rig.backend.Stage(round.batch()));
        CHECK(rig.gpu.num_launches == before);
        REQUIRE_FALSE(rig.Collect());
        rig.gpu.Replay(graph);
        REQUIRE(rig.Collect());
        round.CheckAnswers();
      }
      REQUIRE_OK(rig.backend.Prepare(rig.limits));
      CHECK(!rig.gpu.used_pinned.empty());
    }
  }

  TEST_CASE("memory is taken when it is first needed, once, and given back") {
    for (const bool stages_first : {false, true}) {
      FakeGpu gpu;
      ImportedMemory imported(&gpu);
      {
        CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), kPlenty);
        REQUIRE_OK(backend.Prepare({kMixed.vocab_size, kMixed.batch, kMixed.max_draft}));
        const auto count = [&] { return gpu.allocations.size() + gpu.pinned.size(); };
        const size_t prepared = count();
        REQUIRE_OK(backend.Collect().status());
        CHECK(count() == prepared);
        int stream = 0;
        StagedCase round(Sized(3, 800), &imported);
        if (stages_first) REQUIRE_OK(backend.Stage(round.batch()));
        REQUIRE_OK(backend.EnqueueStaged(&stream, 1));
        const size_t staged = count();
        CHECK(staged > prepared);
        if (!stages_first) REQUIRE_OK(backend.Stage(round.batch()));
        REQUIRE_OK(backend.EnqueueStaged(&stream, 24));
        gpu.Replay(gpu.others_work[&stream]);
        REQUIRE_OK(backend.Collect().status());
        CHECK(count() == staged);
      }
      CHECK(gpu.allocations.empty());
      CHECK(gpu.pinned.empty());
    }
  }
}

}  // namespace
}  // namespace specd
