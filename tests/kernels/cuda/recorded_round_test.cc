// Which rounds are recorded on a device, and what a record holds of what the device alone knows.
// The numbers of plain rounds are compared in cuda_records_test.cc.
#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/kernels/cuda/record_difference.h"
#include "tests/kernels/cuda/run_round.h"
#include "tests/kernels/cuda/staged_open.h"
#include "tests/support/decision_text.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

constexpr int32_t kMaxDraft = 4;

TEST_SUITE("unit") {
  TEST_CASE("a round that nobody records has the launches of a graph, and no other") {
    FakeGpu gpu;
    CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), int64_t{1} << 30);
    REQUIRE(backend.Prepare({300, 8, 2}).ok());
    RoundCase round({.vocab_size = 300, .batch = 8, .max_draft = 2, .seed = 32});
    REQUIRE(backend.Run(round.All()).ok());
    CHECK(gpu.num_graph_launches == 1);
    CHECK(gpu.num_records == 0);
    DecisionsOf(backend, round.All(), 3);
    CHECK(gpu.num_graph_launches == 1);
    CHECK(gpu.num_records == 1);
    REQUIRE(backend.Run(round.All()).ok());
    CHECK(gpu.num_graph_launches == 2);
    CHECK(gpu.num_records == 1);
  }

  TEST_CASE("a failure to launch the record is a failure of the round") {
    FakeGpu gpu;
    CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), int64_t{1} << 30);
    REQUIRE(backend.Prepare({300, 8, 2}).ok());
    RoundCase round({.vocab_size = 300, .batch = 8, .max_draft = 2, .seed = 33});
    RoundBatch batch = round.All();
    const RecordedDecisions decisions(&batch, 3);
    gpu.failing_call = "LaunchRecord";
    const absl::Status failed = backend.Run(batch);
    CHECK(failed.code() == absl::StatusCode::kInternal);
    CHECK(Mentions(failed, "LaunchRecord"));
    gpu.failing_call.clear();
    CHECK(backend.Run(batch).ok());
  }

  TEST_CASE("a round that is done in pieces has the records of the CPU") {
    const RoundCase::Options options{
        .vocab_size = 300, .batch = 24, .max_draft = kMaxDraft, .seed = 31};
    FakeGpu gpu;
    // The smallest upload memory holds one sequence.
    CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), 1);
    CpuBackend cpu(CpuTarget::kBaseline);
    for (Backend* const each : std::initializer_list<Backend*>{&backend, &cpu}) {
      REQUIRE(each->Prepare({options.vocab_size, options.batch, options.max_draft}).ok());
    }
    DecisionCounts counts;
    CHECK(RecordDifference(backend, cpu, options, &counts) == "");
    CHECK(gpu.num_records == options.batch);
    CHECK(counts.HasAll());
  }

  // The drafts are known to the device alone; the record has those that it judged.
  TEST_CASE("drafts that wait by slot are recorded as they were read") {
    const RoundCase::Options options{
        .vocab_size = 300, .batch = 24, .max_draft = kMaxDraft, .seed = 34};
    for (const bool on_device : {false, true}) {
      FakeGpu gpu;
      std::unique_ptr<Backend> backend = std::make_unique<CpuBackend>(CpuTarget::kBaseline);
      if (on_device) {
        backend =
            std::make_unique<CudaBackend>(std::make_unique<FakeGpuDriver>(&gpu), int64_t{1} << 30);
      }
      REQUIRE(backend
                  ->Prepare({.vocab_size = options.vocab_size,
                             .max_batch = options.batch,
                             .max_draft = options.max_draft,
                             .num_slots = 2 * static_cast<uint32_t>(options.batch)})
                  .ok());
      SlotRounds rounds(options, true);
      rounds.Next();
      const RoundBatch known = rounds.Known();
      ScalarAnswers(rounds.round(), known);
      std::vector<std::vector<TokenId>> drafts;
      for (int32_t i = 0; i < known.num_tasks; ++i) {
        const Draft& draft = known.tasks[i].draft;
        drafts.emplace_back(draft.tokens, draft.tokens + draft.num_nodes);
      }
      rounds.Commit();
      SlotMemory memory(options);
      RoundBatch batch = rounds.Open(&memory);
      batch.slots = {};
      std::vector<Task> tasks(batch.tasks, batch.tasks + batch.num_tasks);
      for (Task& task : tasks) task.continues = false;
      batch.tasks = tasks.data();
      const RecordedDecisions decisions(&batch, kMaxDraft + 1);
      REQUIRE(backend->Run(batch).ok());
      int num_by_slot = 0;
      for (int32_t i = 0; i < batch.num_tasks; ++i) {
        if (!tasks[static_cast<size_t>(i)].drafts_by_slot) continue;
        ++num_by_slot;
        const std::vector<TokenId>& draft = drafts[static_cast<size_t>(i)];
        const PlaceDecision* const places = &decisions.all[size_t(i * (kMaxDraft + 1))];
        // The first id outside the vocabulary ends the draft (CONTRACT 2): nothing behind it was
        // judged.
        const auto outside = std::find_if(draft.begin(), draft.end(),
                                          [&](TokenId id) { return id < 0 || id >= 300; });
        const bool is_id = outside != draft.end() && *outside != kNoToken;
        const auto end = static_cast<size_t>(outside - draft.begin()) + (is_id ? 1 : 0);
        for (size_t node = 0; node < end; ++node) {
          CAPTURE(i);
          CAPTURE(node);
          CHECK(places[node].draft == draft[node]);
        }
        CHECK(places[end].draft == kNoToken);
      }
      CHECK(num_by_slot > 0);
    }
  }

  TEST_CASE("staged rounds are recorded where the limits say so, and answered the same") {
    const RoundCase::Options options{.vocab_size = 1500,
                                     .batch = 24,
                                     .max_draft = kMaxDraft,
                                     .dtype = DType::kBFloat16,
                                     .seed = 35};
    for (const bool records : {false, true}) {
      CAPTURE(records);
      StagingRig rig(options, 0, records);
      const auto graph = rig.Enqueue(options.batch);
      DecisionCounts counts;
      for (uint64_t seed = 0; seed < 6; ++seed) {
        RoundCase::Options sized = options;
        sized.seed += seed;
        StagedCase round(sized, &rig.imported);
        round.Record();
        REQUIRE_OK(rig.backend.Stage(round.batch()));
        rig.gpu.Replay(graph);
        rig.gpu.Replay(graph);  // nothing is staged
        REQUIRE(rig.Collect());
        round.CheckAnswers();
        round.CheckDecisions(records, &counts);
      }
      CHECK(rig.gpu.num_records == (records ? 6 : 0));
      CHECK(counts.HasAll() == records);
    }
  }
}

}  // namespace
}  // namespace specd
