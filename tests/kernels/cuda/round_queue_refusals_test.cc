// Refusals of a queue of staged rounds, and its errors if memory or the device fails.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/kernels/cuda/staged_case.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

constexpr RoundCase::Options kSmall{.vocab_size = 700, .batch = 6, .max_draft = 2, .seed = 950};

TEST_SUITE("unit") {
  TEST_CASE("what a device cannot do by itself is refused by name") {
    StagingRig rig(kSmall);
    const auto graph = rig.Enqueue(6);
    TokenId drafts[12] = {};
    SlotOutput array;
    Task task;
    struct Case {
      const char* text;
      std::function<void(RoundBatch*)> change;
    };
    const std::vector<Case> cases = {
        {"the target rows of a staged round",
         [](RoundBatch* batch) { batch->target.space = MemorySpace::kHost; }},
        {"the draft rows of a staged round",
         [](RoundBatch* batch) { batch->draft.space = MemorySpace::kHost; }},
        {"the masks of a staged round",
         [](RoundBatch* batch) { batch->mask.space = MemorySpace::kHost; }},
        {"the masks of a staged round",
         [](RoundBatch* batch) { batch->mask.space = MemorySpace::kOtherDevice; }},
        {"the draft tokens of a staged round",
         [&](RoundBatch* batch) {
           batch->draft_tokens = {drafts, 2, MemorySpace::kHost};
         }},
        {"the slot outputs of a staged round",
         [&](RoundBatch* batch) {
           array = {batch->slot_outputs[1].data, MemorySpace::kHost};
           batch->slot_outputs = &array;
           batch->num_slot_outputs = 1;
         }},
        {"the slot outputs of a staged round",
         [&](RoundBatch* batch) {
           array = {batch->slot_outputs[1].data, MemorySpace::kOtherDevice};
           batch->slot_outputs = &array;
           batch->num_slot_outputs = 1;
         }},
        {"task 0 of a staged round is of kind 1",
         [&](RoundBatch* batch) {
           task = batch->tasks[0];
           task.kind = TaskKind::kScore;
           batch->tasks = &task;
           batch->num_tasks = 1;
         }},
        {"task 0 of a staged round is of kind 2", [&](RoundBatch* batch) {
           task = batch->tasks[0];
           task.kind = TaskKind::kSampleDraft;
           batch->tasks = &task;
           batch->num_tasks = 1;
         }}};
    StagedCase round(kSmall, &rig.imported);
    for (const Case& c : cases) {
      CAPTURE(c.text);
      RoundBatch batch = round.batch();
      c.change(&batch);
      const absl::Status status = rig.backend.Stage(batch);
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(Mentions(status, c.text));
      CHECK(Mentions(status, "instead of staging it"));
      CHECK_FALSE(rig.Collect());
    }
    // None of them left anything.
    REQUIRE_OK(rig.backend.Stage(round.batch()));
    rig.gpu.Replay(graph);
    REQUIRE(rig.Collect());
    round.CheckAnswers();
  }

  // Nothing is read of tensors that are not there, wherever they are not.
  TEST_CASE("rows that a round does not have need not lie on the device") {
    RoundCase::Options options = kSmall;
    options.plain = true;
    StagingRig rig(options);
    StagedCase round(options, &rig.imported);
    for (int32_t i = 0; i < round.batch().num_tasks; ++i) {
      CHECK(round.batch().tasks[i].places == nullptr);
    }
    round.batch().mask = {};
    round.batch().num_slot_outputs = 0;
    REQUIRE_OK(rig.backend.Stage(round.batch()));
    rig.gpu.Replay(rig.Enqueue(6));
    CHECK(rig.Collect());
  }

  TEST_CASE("a stream that is none, and a width that no round has, are refused") {
    StagingRig rig(kSmall);
    int stream = 0;
    const absl::Status no_stream = rig.backend.EnqueueStaged(nullptr, 1);
    CHECK(no_stream.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Mentions(no_stream, "cudaStreamLegacy"));
    for (const int32_t num_tasks : {-1, 0, 7}) {
      const absl::Status status = rig.backend.EnqueueStaged(&stream, num_tasks);
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(Mentions(status, "give 1 to max_batch, which is 6"));
    }
    CHECK(rig.gpu.others_work.empty());
  }

  TEST_CASE("a stream of another device is refused with both, and takes no memory") {
    StagingRig rig(kSmall);
    const size_t prepared = rig.gpu.allocations.size() + rig.gpu.pinned.size();
    int other = 0;
    rig.gpu.devices_of_streams[&other] = 3;
    const absl::Status status = rig.backend.EnqueueStaged(&other, 2);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Mentions(status, "cuda_stream is of device 3, and rounds run on device 0"));
    CHECK(Mentions(status, "give a stream of that device"));
    rig.gpu.devices_of_streams.clear();
    rig.gpu.failing_call = "FindDevice";
    const absl::Status unknown = rig.backend.EnqueueStaged(&other, 2);
    CHECK(unknown.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Mentions(unknown, "fake failure of FindDevice"));
    CHECK(rig.gpu.allocations.size() + rig.gpu.pinned.size() == prepared);
    CHECK(rig.gpu.others_work.empty());
    // Its own device, under any number.
    rig.gpu.failing_call = "";
    rig.gpu.used_device = 2;
    rig.gpu.devices_of_streams[&other] = 2;
    CHECK(rig.backend.EnqueueStaged(&other, 2).ok());
  }

  TEST_CASE("of a round that does not fit the sequence with the longest lists is named") {
    // One sequence may have twice the list of a whole vocabulary, besides the usual.
    constexpr int32_t kVocabSize = 300000;
    RoundCase::Options options = kSmall;
    options.vocab_size = kVocabSize;
    options.plain = true;
    options.max_draft = 1;
    FakeGpu gpu;
    ImportedMemory imported(&gpu);
    // Room for copies of the rows of two sequences, which staged rounds have no use for.
    CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), 2 * 3 * kVocabSize * 4);
    REQUIRE_OK(backend.Prepare({kVocabSize, options.batch, options.max_draft}));
    StagedCase round(options, &imported);
    REQUIRE(round.batch().num_tasks == 6);
    int stream = 0;
    REQUIRE_OK(backend.EnqueueStaged(&stream, 6));

    std::vector<TokenEdit> edits(3 * kVocabSize);
    std::vector<Task> tasks(round.batch().tasks, round.batch().tasks + 6);
    const auto give = [&](size_t task, int32_t num_edits) {
      tasks[task].edits.edits = edits.data();
      tasks[task].edits.num_edits = num_edits;
    };
    RoundBatch batch = round.batch();
    batch.tasks = tasks.data();
    const auto named = [&] {
      std::fill_n(batch.outcomes, 6, TaskOutcome{});
      const absl::Status refused = backend.Stage(batch);
      CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
      std::vector<int32_t> tasks_named;
      for (int32_t i = 0; i < 6; ++i) {
        if (batch.outcomes[i].status == OutcomeStatus::kNoRoom) tasks_named.push_back(i);
      }
      CHECK(Mentions(refused, "of all these 6 sequences; stage it without the " +
                                  std::to_string(tasks_named.size())));
      return tasks_named;
    };
    using Tasks = std::vector<int32_t>;
    // Not the first that finds no room.
    give(1, kVocabSize);
    give(4, 2 * kVocabSize);
    CHECK(named() == Tasks{4});
    give(1, 2 * kVocabSize + 1);
    CHECK(named() == Tasks{1});
    // By itself a list of that length is refused as well, though there would be room: it would be
    // in a larger round.
    give(4, 0);
    CHECK(named() == Tasks{1});
    // As many as it takes, at once, and those that are too long in any case.
    for (size_t task = 0; task < 5; ++task) give(task, kVocabSize - static_cast<int32_t>(task));
    CHECK(named() == Tasks{0, 1, 2});
    give(3, 3 * kVocabSize);
    give(4, 2 * kVocabSize + 1);
    CHECK(named() == Tasks{0, 3, 4});
    for (size_t task = 0; task < 5; ++task) give(task, 0);
    give(1, 2 * kVocabSize);
    REQUIRE_OK(backend.Stage(batch));
    gpu.Replay(gpu.others_work[&stream]);
    const absl::StatusOr<bool> done = backend.Collect();
    REQUIRE_OK(done.status());
    CHECK(*done);
    round.CheckAnswers();
  }

  TEST_CASE("memory that is not there is an error that names the limits, and can be asked again") {
    struct FailingCall {
      std::string call;
      int after;
    };
    for (const FailingCall& failing : std::vector<FailingCall>{{"AllocatePinned", 0},
                                                               {"AllocatePinned", 1},
                                                               {"AllocatePinned", 2},
                                                               {"AllocateZeroed", 0},
                                                               {"AllocateZeroed", 3},
                                                               {"Allocate", 4}}) {
      CAPTURE(failing.call);
      StagingRig rig(kSmall);
      const size_t prepared = rig.gpu.allocations.size() + rig.gpu.pinned.size();
      rig.gpu.failing_call = failing.call;
      int stream = 0;
      StagedCase round(kSmall, &rig.imported);
      for (int i = 0; i < 2; ++i) {
        rig.gpu.failing_after = failing.after;
        const absl::Status status =
            i == 0 ? rig.backend.EnqueueStaged(&stream, 2) : rig.backend.Stage(round.batch());
        CHECK(status.code() == absl::StatusCode::kResourceExhausted);
        CHECK(Mentions(status, "max_batch 6, max_draft 2, vocab_size 700 and 0 slots"));
        CHECK(Mentions(status, "fake failure of " + failing.call));
        CHECK(Mentions(status, "lower them or free memory"));
        CHECK(rig.gpu.allocations.size() + rig.gpu.pinned.size() == prepared);
        CHECK(rig.gpu.others_work.empty());
      }
      rig.gpu.failing_call = "";
      REQUIRE_OK(rig.backend.Stage(round.batch()));
      rig.gpu.Replay(rig.Enqueue(2));
      REQUIRE(rig.Collect());
      round.CheckAnswers();
    }
  }

  TEST_CASE("launches that cannot be enqueued are an error, and later ones go where they belong") {
    for (const std::string call : {"LaunchTakeStaged", "LaunchFetchStaged", "LaunchResolve",
                                   "LaunchRound", "LaunchEndStaged"}) {
      CAPTURE(call);
      StagingRig rig(kSmall);
      int stream = 0;
      rig.gpu.failing_call = call;
      const absl::Status status = rig.backend.EnqueueStaged(&stream, 2);
      CHECK(status.code() == absl::StatusCode::kInternal);
      CHECK(Mentions(status, "fake failure of " + call));
      rig.gpu.failing_call = "";
      rig.gpu.others_work.clear();
      // On the backend's own CUDA stream, as before.
      RoundCase other(kSmall);
      REQUIRE_OK(rig.backend.Run(other.All()));
      CHECK(rig.gpu.others_work.empty());
      CHECK(AnswersOf(other, 6) == CpuAnswers(kSmall, InOrder(6)));
      StagedCase round(kSmall, &rig.imported);
      REQUIRE_OK(rig.backend.Stage(round.batch()));
      rig.gpu.Replay(rig.Enqueue(2));
      REQUIRE(rig.Collect());
      round.CheckAnswers();
    }
  }

  TEST_CASE("a device that fails is an error of Collect, after the rounds that were done before") {
    StagingRig rig(kSmall);
    const auto graph = rig.Enqueue(6);
    RoundCase::Options options = kSmall;
    StagedCase first(options, &rig.imported);
    options.seed += 1;
    StagedCase second(options, &rig.imported);
    REQUIRE_OK(rig.backend.Stage(first.batch()));
    REQUIRE_OK(rig.backend.Stage(second.batch()));
    rig.gpu.Replay(graph);
    rig.gpu.fault = GpuResult::Error("an illegal address in another's kernel");
    rig.gpu.Replay(graph);
    REQUIRE(rig.Collect());
    first.CheckAnswers();
    for (int i = 0; i < 2; ++i) {
      const absl::Status failed = rig.backend.Collect().status();
      CHECK(failed.code() == absl::StatusCode::kInternal);
      CHECK(Mentions(failed, "before a staged round was done"));
      CHECK(Mentions(failed, "an illegal address in another's kernel"));
    }
  }
}

}  // namespace
}  // namespace specd
