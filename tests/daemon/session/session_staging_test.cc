// Rounds that are staged for the engine's CUDA graph: the steps in which a session takes, stages
// and answers them, and the refusals of the C interface.
#include <doctest/doctest.h>

#include "daemon/session/tensor_role.h"
#include "ipc/base/error.h"
#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/last_error.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

struct Fixture : SessionFixture {
  explicit Fixture(const char* uuid = "GPU-0", bool may_stage = true, bool binds_rows = false) {
    SessionOptions options = session->options();
    options.may_stage = may_stage;
    auto owned = std::make_unique<ScriptedBackend>();
    backend = owned.get();
    backend->uuid = uuid;
    AttachWithoutRows(options, std::move(owned));
    if (binds_rows) BindRows();  // in host memory
  }
  void Enqueue() { REQUIRE(session->EnqueueStaged(this, 1).ok()); }

  // Greedy rounds with argmax ids need no rows.
  PushResult Stage(SequenceHandle sequence, uint64_t round_id) {
    const SequenceInput draft = DraftOf(sequence);
    return engine->SubmitStaged(round_id, {&draft, 1}, 0);
  }
  SequenceInput DraftOf(SequenceHandle sequence) const {
    SequenceInput draft;
    draft.sequence = sequence;
    draft.draft.num_nodes = 3;
    draft.draft.tokens = tokens;
    draft.draft.target_argmax = argmax;
    return draft;
  }
  SequenceHandle OpenGreedy(const std::string& name, int64_t max_tokens = 100) {
    SequenceParams params;
    params.max_tokens = max_tokens;
    params.temperature = 0;
    auto info = session->OpenSequences(name, params);
    REQUIRE(info.ok());
    return info->front().handle;
  }

  const TokenId argmax[4] = {0, 0, 0, 0};
  CompletionView completion;
};

TEST_SUITE("unit") {
  TEST_CASE("a staged round is taken at once and answered when the device has done it") {
    Fixture f;
    f.Enqueue();
    const SequenceHandle s = f.OpenGreedy("r");
    REQUIRE(f.Stage(s, 11) == PushResult::kOk);
    CHECK(StepSession(f.session));
    CHECK(f.backend->staged.size() == 1);
    CHECK_FALSE(StepSession(f.session));
    REQUIRE(f.Stage(s, 12) == PushResult::kOk);
    CHECK(StepSession(f.session));
    CHECK_FALSE(f.engine->HasCompletion());

    f.backend->script = {Confirm(2, {1, 2, 4}), Confirm(0, {5})};
    f.backend->num_run = 2;
    CHECK(StepSession(f.session));
    REQUIRE(f.engine->Poll(&f.completion));
    CHECK(f.completion.round_id == 11);
    REQUIRE(f.completion.results.size() == 1);
    CHECK(f.completion.results[0].num_kept == 3);
    CHECK(f.completion.results[0].tokens[2] == 4);
    CHECK(StepSession(f.session));
    REQUIRE(f.engine->Poll(&f.completion));
    CHECK(f.completion.round_id == 12);
    CHECK(f.completion.results[0].total_kept == 4);
    CHECK_FALSE(StepSession(f.session));
    // The text side hears of the tokens as of any others.
    size_t num_tokens = 0;
    for (const TokenEvent& event : f.Events()) num_tokens += event.num_ids();
    CHECK(num_tokens == 4);
  }

  TEST_CASE("more rounds than may be staged are staged over a whole lap, each answered as it was") {
    Fixture f;
    f.Enqueue();
    const SequenceHandle a = f.OpenGreedy("a");
    const SequenceHandle b = f.OpenGreedy("b");
    for (uint64_t round = 1; round <= 3 * uint64_t{kStagedRoundsMax}; ++round) {
      const SequenceHandle s = round % 2 == 0 ? a : b;
      REQUIRE(f.Stage(s, round) == PushResult::kOk);
      REQUIRE(StepSession(f.session));
      if (round == 1) continue;
      // One round stays under way.
      f.backend->script = {Confirm(0, {static_cast<TokenId>(round % 7)})};
      f.backend->num_run = 1;
      REQUIRE(StepSession(f.session));
      REQUIRE(f.engine->Poll(&f.completion));
      CHECK(f.completion.round_id == round - 1);
      CHECK(f.completion.results[0].sequence == (round % 2 == 0 ? b : a));
      CHECK(f.completion.results[0].tokens[0] == static_cast<TokenId>(round % 7));
    }
  }

  TEST_CASE(
      "a device that fails while it stages is said in the round's turn, and the session says so") {
    Fixture f;
    f.Enqueue();
    const SequenceHandle s = f.OpenGreedy("r");
    REQUIRE(f.Stage(s, 1) == PushResult::kOk);
    REQUIRE(StepSession(f.session));
    f.backend->stage_statuses = {absl::InternalError("gone"), absl::InternalError("gone")};
    REQUIRE(f.Stage(s, 2) == PushResult::kOk);
    REQUIRE(StepSession(f.session));
    for (const uint64_t round : {1, 2}) {
      REQUIRE(StepSession(f.session));
      REQUIRE(f.engine->Poll(&f.completion));
      CHECK(f.completion.round_id == round);
      CHECK(f.completion.results[0].sequence == s);
      CHECK(f.completion.results[0].status == RoundStatus::kDeviceError);
      CHECK(f.session->WhyDeviceFailed() == "gone");
    }
    CHECK(f.session->device_failed());
  }

  TEST_CASE("what cannot be staged is refused by name") {
    Fixture host_rows("GPU-0", true, true);
    absl::Status status = host_rows.session->CheckStaging();
    CHECK(ErrorCodeOf(status) == SPECD_ERROR_STATE);
    CHECK(status.message().find("SPECD_TARGET_ROWS is bound to region = 1") !=
          std::string_view::npos);
    CHECK(ErrorCodeOf(host_rows.session->EnqueueStaged(nullptr, 1)) == SPECD_ERROR_STATE);
    CHECK(host_rows.backend->enqueued.empty());
    // The next tokens are in another rank's memory, which is of a device, but not of the right one.
    Fixture other_device;
    auto region = other_device.session->device_regions().Adopt(DeviceRegion(4096, 4096, "GPU-1"));
    REQUIRE(region.ok());
    const auto replica = static_cast<TensorRole>(SPECD_NEXT_TOKEN + 1);
    REQUIRE(other_device.session->Bind(replica, *region, {0, 0, 4, 0}).ok());
    status = other_device.session->CheckStaging();
    CHECK(ErrorCodeOf(status) == SPECD_ERROR_STATE);
    CHECK(ErrorFieldOf(status) == "region");
    for (const char* part :
         {"SPECD_NEXT_TOKEN + 1", "memory of GPU-1", "rounds run on GPU-0", "specd_submit"}) {
      CAPTURE(part);
      CHECK(status.message().find(part) != std::string_view::npos);
    }
    CHECK(status.message().find("specd_import_device") == std::string_view::npos);
    Fixture not_enqueued;
    status = not_enqueued.session->CheckStaging();
    CHECK(ErrorCodeOf(status) == SPECD_ERROR_STATE);
    CHECK(status.message().find("specd_enqueue_staged") != std::string_view::npos);
    Fixture elsewhere;
    elsewhere.backend->next_status = absl::InvalidArgumentError("of another device");
    status = elsewhere.session->EnqueueStaged(&elsewhere, 1);
    CHECK(ErrorCodeOf(status) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(ErrorFieldOf(status) == "cuda_stream");
    CHECK(status.message().find("of another device") != std::string_view::npos);
    CHECK(ErrorCodeOf(elsewhere.session->CheckStaging()) == SPECD_ERROR_STATE);
    Fixture cpu("");
    CHECK(ErrorCodeOf(cpu.session->CheckStaging()) == SPECD_ERROR_UNSUPPORTED);
    Fixture remote("GPU-0", false);
    CHECK(ErrorCodeOf(remote.session->CheckStaging()) == SPECD_ERROR_UNSUPPORTED);
  }

  TEST_CASE("the C interface stages in embedded:cuda only") {
    const auto refuses = [](specd_engine* engine, specd_sequence sequence) {
      const uint32_t row = 0;
      const specd_draft part = ChainDraft(sequence, 0, nullptr, &row);
      CHECK(specd_stage_round(engine, 1, &part, 1) == SPECD_ERROR_UNSUPPORTED);
      CHECK(LastErrorHas("open embedded:cuda"));
      CHECK(specd_enqueue_staged(engine, 1, nullptr) == SPECD_ERROR_UNSUPPORTED);
      CHECK(specd_stage_round(engine, 1, nullptr, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    };
    test::EmbeddedEngine embedded;
    refuses(embedded.engine, embedded.Open(test::EmbeddedEngine::Params()));
    test::EngineHost host;
    test::EmbeddedEngine attached(host.uri);
    refuses(attached.engine, attached.Open(test::EmbeddedEngine::Params()));
    CHECK(specd_stage_round(nullptr, 1, nullptr, 0) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_enqueue_staged(nullptr, 1, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace specd
