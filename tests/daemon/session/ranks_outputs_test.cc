// Slot outputs of ranks that join: they are those of rank 0's rounds, in memory of each rank, until
// it leaves.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "tests/daemon/session/rank_host.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::Join;
using test::MemberPtr;
using test::RankedHost;
using test::RankMemory;
using test::TokenOf;

using Written = std::vector<std::pair<size_t, int32_t>>;

specd_tensor Rows(uint64_t row_stride = 0, uint32_t dtype = SPECD_INT32) {
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.dtype = dtype;
  tensor.num_rows = test::kRankSlots;
  tensor.row_stride = row_stride;
  return tensor;
}

int Bind(const MemberPtr& member, int role, const RankMemory& memory, const specd_tensor& tensor) {
  return specd_member_bind_fd_tensor(member.get(), role, memory.fd.get(), RankMemory::kBytes,
                                     &tensor);
}

TEST_SUITE("unit") {
  TEST_CASE("ranks: a rank binds every slot output that it reads, and next tokens last") {
    RankedHost host;
    EmbeddedEngine& engine = host.engine;
    MemberPtr member;
    REQUIRE(Join(host.uri, TokenOf(engine.engine), 3, &member) == SPECD_OK);
    RankMemory kept;
    RankMemory total;
    RankMemory next;
    REQUIRE(Bind(member, SPECD_KEPT_TOKENS, kept, Rows(7)) == SPECD_OK);
    REQUIRE(Bind(member, SPECD_TOTAL_KEPT, total, Rows(0, SPECD_INT64)) == SPECD_OK);
    CHECK(test::BoundRanks(engine.engine) == 0);
    REQUIRE(next.BindTo(member) == SPECD_OK);
    CHECK(test::BoundRanks(engine.engine) == 0b1000);
    engine.Open(engine.Params(), "other");
    const specd_sequence sequence = engine.Open(engine.Params(), "r");
    REQUIRE(specd_sequence_slot(sequence) == 1);
    const int32_t drafts[] = {1, 2, 7};
    CHECK(engine.Round(ChainDraft(sequence, 3, drafts, engine.rows)).num_kept == 3);
    CHECK(kept.Written() == Written{{7, 1}, {8, 2}, {9, 3}, {10, -1}});
    CHECK(total.Written() == Written{{2, 3}, {3, 0}});
    CHECK(next.Written() == Written{{1, 3}});

    // A role that is bound anew leaves the old memory alone, and the other roles go on.
    RankMemory moved;
    REQUIRE(Bind(member, SPECD_KEPT_TOKENS, moved, Rows()) == SPECD_OK);
    kept.Fill();
    CHECK(engine.Sample(sequence, 3).num_kept == 1);
    CHECK(kept.Written().empty());
    CHECK(moved.Written() == Written{{4, 4}, {5, -1}, {6, -1}, {7, -1}});
    CHECK(total.Written() == Written{{2, 4}, {3, 0}});
    // Nothing is written any more when the rank has left.
    CHECK(specd_leave(member.release()) == SPECD_OK);
    for (RankMemory* memory : {&moved, &total, &next}) memory->Fill();
    CHECK(engine.Sample(sequence, 0).num_kept == 1);
    for (const RankMemory* memory : {&moved, &total, &next}) CHECK(memory->Written().empty());
  }

  TEST_CASE("ranks: slot outputs that a rank cannot bind are refused by field") {
    RankedHost host;
    EmbeddedEngine& engine = host.engine;
    MemberPtr member;
    REQUIRE(Join(host.uri, TokenOf(engine.engine), 3, &member) == SPECD_OK);
    RankMemory memory;
    const auto refused = [&](int role, const specd_tensor& tensor, const char* what) {
      CHECK(Bind(member, role, memory, tensor) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas(what));
    };
    specd_tensor in_region = Rows();
    in_region.region = 1;
    // Tries more often than a rank may have regions: a refused binding keeps none.
    for (int time = 0; time < 20; ++time) {
      refused(SPECD_NUM_KEPT, Rows(0, SPECD_FLOAT32), "dtype = 0 of SPECD_NUM_KEPT");
      refused(SPECD_KEPT_TOKENS, Rows(2), "row_stride = 2");
    }
    refused(SPECD_NUM_KEPT, in_region, "region = 1 must be 0");
    refused(SPECD_NUM_KEPT + 3, Rows(), "role = 43 is no slot output");
    refused(SPECD_TARGET_ROWS, Rows(), "role = 1 is no slot output");
    refused(SPECD_DRAFT_TOKENS, Rows(), "role = 16 is no slot output");
    const specd_tensor rows = Rows();
    CHECK(specd_member_bind_fd_tensor(nullptr, 4, 1, 1, &rows) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_member_bind_fd_tensor(member.get(), 4, 1, 1, nullptr) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_member_bind_device_tensor(nullptr, 4, 1, 1, &rows) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_member_bind_device_tensor(member.get(), 4, 1, 1, nullptr) ==
          SPECD_ERROR_INVALID_ARGUMENT);

    // The engine may not bind any role of the rank, nor may a rank join whose roles it has bound.
    specd_tensor own = Rows();
    own.region = 1;
    CHECK(specd_bind(engine.engine, SPECD_NUM_KEPT + 3, &own) == SPECD_ERROR_STATE);
    CHECK(specd_bind(engine.engine, SPECD_NUM_KEPT + 4, &own) == SPECD_OK);
    MemberPtr late;
    CHECK(Join(host.uri, TokenOf(engine.engine), 4, &late) == SPECD_ERROR_STATE);
    CHECK(LastErrorHas("SPECD_NUM_KEPT + 4"));
  }
}

}  // namespace
}  // namespace specd
