// Bind chooses the rows that rounds read: its effect on regions and roles.
#include <doctest/doctest.h>
#include <unistd.h>

#include <string_view>
#include <utility>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/session/hooked_session.h"
#include "tests/support/sealed_memory.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

constexpr uint64_t kRegionBytes = 4096;
constexpr uint64_t kRowBytes = 8 * sizeof(float);  // the fixture's vocabulary has 8 tokens

struct Fixture : HookedSession {
  Fixture() {
    auto region = session->RegisterRegion(SealedMemory(kRegionBytes), kRegionBytes);
    REQUIRE(region.ok());
    id = *region;
    UniqueFd map = SealedMemory(kRegionBytes);
    const int32_t ids[] = {6, 1, 4, 0};
    REQUIRE(pwrite(map.get(), ids, sizeof(ids), 0) == sizeof(ids));
    auto map_region = session->RegisterRegion(std::move(map), kRegionBytes);
    REQUIRE(map_region.ok());
    map_id = *map_region;
    hooked->hook = [this](const RoundBatch& batch) { batches.push_back(batch); };
  }

  absl::Status Bind(TensorRole role, uint64_t first_row, uint64_t num_rows) {
    return session->Bind(role, id, {SPECD_FLOAT32, first_row * kRowBytes, num_rows, 0});
  }

  // The status of a round with one drafted token that was drawn from `draft_row`.
  RoundStatus Round(SequenceHandle sequence, uint32_t target_row, uint32_t draft_row) {
    const TokenId token = 1;
    const DraftKind kind = DraftKind::kSampled;
    const uint32_t target_rows[] = {target_row, target_row};
    SequenceInput draft;
    draft.sequence = sequence;
    draft.draft = {.num_nodes = 1,
                   .tokens = &token,
                   .kinds = &kind,
                   .target_rows = target_rows,
                   .draft_rows = &draft_row};
    backend->script = {Confirm(0, {1})};
    REQUIRE(engine->Submit(1, {&draft, 1}, 0) == PushResult::kOk);
    REQUIRE(StepSession(session));
    CompletionView done;
    REQUIRE(engine->Poll(&done));
    return done.results[0].status;
  }

  uint32_t id = 0;
  uint32_t map_id = 0;  // its memory names the ids of four columns
  std::vector<RoundBatch> batches;
};

TEST_SUITE("unit") {
  TEST_CASE("each role has rows of its own, and a limit of its own") {
    Fixture f;
    REQUIRE(f.Bind(TensorRole::kTargetRows, 0, 4).ok());
    REQUIRE(f.Bind(TensorRole::kDraftRows, 10, 2).ok());
    const SequenceHandle s = f.Open("r");
    CHECK(f.Round(s, 3, 1) == RoundStatus::kOk);
    REQUIRE(f.batches.size() == 1);
    const TensorView& target = f.batches[0].target;
    const TensorView& draft = f.batches[0].draft;
    CHECK(target.num_rows == 4);
    CHECK(draft.num_rows == 2);
    CHECK(static_cast<const char*>(draft.data) - static_cast<const char*>(target.data) ==
          10 * static_cast<int64_t>(kRowBytes));
    CHECK(f.Round(s, 4, 1) == RoundStatus::kInvalid);
    CHECK(f.Round(s, 3, 2) == RoundStatus::kInvalid);

    // The other way round: more draft rows than target rows.
    REQUIRE(f.Bind(TensorRole::kDraftRows, 10, 6).ok());
    CHECK(f.Round(s, 3, 5) == RoundStatus::kOk);
    CHECK(f.Round(s, 4, 5) == RoundStatus::kInvalid);
    CHECK(f.batches.size() == 2);
  }

  TEST_CASE("without draft rows no sampled token can be judged") {
    Fixture f;
    REQUIRE(f.Bind(TensorRole::kTargetRows, 0, 4).ok());
    CHECK(f.Round(f.Open("r"), 0, 0) == RoundStatus::kInvalid);
  }

  TEST_CASE("bug: after a map that the device could not keep, rounds read rows of no columns") {
    Fixture f;
    const auto bind_map = [&f] {
      return f.session->Bind(TensorRole::kDraftMap, f.map_id,
                             {.dtype = SPECD_INT32, .num_rows = 1, .columns = 4});
    };
    const auto bind_narrow = [&f] {
      return f.session->Bind(TensorRole::kDraftRows, f.id,
                             {.dtype = SPECD_FLOAT32, .num_rows = 2, .columns = 4});
    };
    REQUIRE(f.Bind(TensorRole::kTargetRows, 0, 4).ok());
    REQUIRE(bind_map().ok());
    REQUIRE(bind_narrow().ok());
    const SequenceHandle s = f.Open("r");
    REQUIRE(f.Round(s, 0, 1) == RoundStatus::kOk);
    REQUIRE(f.batches.size() == 1);

    f.backend->keep_status = absl::ResourceExhaustedError("no memory on the device");
    CHECK(bind_map().message().find("no memory on the device") != std::string_view::npos);
    CHECK(f.Round(s, 0, 1) == RoundStatus::kInvalid);
    CHECK(f.batches.size() == 1);  // no round came to the backend
    CHECK(bind_narrow().message().find("SPECD_DRAFT_MAP is not bound") != std::string_view::npos);

    // Another try binds it, and rows after it.
    f.backend->keep_status = absl::OkStatus();
    REQUIRE(bind_map().ok());
    REQUIRE(bind_narrow().ok());
    CHECK(f.Round(s, 0, 1) == RoundStatus::kOk);
    CHECK(f.batches.back().draft.num_columns == 4);
  }

  TEST_CASE("region numbers begin with 1 and end with the last one registered") {
    Fixture f;
    const TensorSpec spec = {SPECD_FLOAT32, 0, 1, 0};
    CHECK(f.id == 2);  // the fixture has rows of its own, and a map
    CHECK(f.map_id == 3);
    CHECK(f.session->Bind(TensorRole::kTargetRows, 1, spec).ok());
    for (const uint32_t wrong : {0u, 4u}) {
      const absl::Status status = f.session->Bind(TensorRole::kTargetRows, wrong, spec);
      CHECK(ErrorCodeOf(status) == SPECD_ERROR_NOT_FOUND);
      CHECK(ErrorFieldOf(status) == "region");
    }
  }
}

}  // namespace
}  // namespace specd
