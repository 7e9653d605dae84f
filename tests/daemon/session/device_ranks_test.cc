// Ranks in processes of their own with next tokens in pretended device memory, beside rank 0's
// engine in another process and a daemon over both. The tests check the ids in each rank's own
// memory, and the state after one rank is killed. The right ids are the argmax of the rows that
// rank 0 was given.
#include "tests/daemon/session/device_ranks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/client/device_host.h"
#include "tests/gpu/driver/fake_gpu_block.h"

namespace specd {
namespace {

using test::DeviceEngine;
using test::DeviceHost;
using test::kDeviceRankSlots;
using test::kNextOffset;
using test::kUntouched;
using test::LastTokenOf;
using test::OnlyAt;
using test::OtherRank;
using test::RankOutputs;
using test::RankZero;

// The memory of another process. This process still sees it after the other's end.
class Witness {
 public:
  Witness(OtherRank& rank, uint64_t address) {
    UniqueFd fd;
    rank.peer.Call({.op = PeerOp::kExport, .kind = GpuMemoryKind::kVmm, .address = address}, -1,
                   &fd);
    int code = kGpuOk;
    block_ = FakeGpuBlock::Open(fd.get(), FakeBlockKind::kVmm, &code);
    REQUIRE(block_ != nullptr);
  }
  std::vector<int32_t> Ids() const {
    const auto* const ids = reinterpret_cast<const int32_t*>(block_->data());
    return {ids, ids + kDeviceRankSlots};
  }
  void Fill() {
    std::fill_n(reinterpret_cast<int32_t*>(block_->data()), kDeviceRankSlots, kUntouched);
  }

 private:
  std::unique_ptr<FakeGpuBlock> block_;
};

// Rank 0 and two more ranks, whose next tokens are bound; the first of them can be killed.
struct TwoRanks {
  TwoRanks(GpuMemoryKind kind, GpuMemoryKind kind_of_two)
      : address(one->Allocate(kind)), address_of_two(two.Allocate(kind_of_two)) {
    REQUIRE(one->Join(zero, 1) == SPECD_OK);
    REQUIRE(two.Join(zero, 2) == SPECD_OK);
    REQUIRE(one->Bind(address) == SPECD_OK);
    REQUIRE(two.Bind(address_of_two) == SPECD_OK);
  }
  // The hang-up is noticed by the control thread; a test that waits in vain hangs.
  void AwaitEndOfOne(size_t imports_left = 2) {
    while (daemon.platform.num_imports() > imports_left) std::this_thread::yield();
  }

  DeviceHost daemon;
  RankZero zero{daemon};
  std::unique_ptr<OtherRank> one = std::make_unique<OtherRank>();
  OtherRank two{1};
  const uint64_t address;
  const uint64_t address_of_two;
};

TEST_SUITE("process") {
  TEST_CASE("ranks: each finds in its own memory what rank 0's rows decide") {
    for (const GpuMemoryKind kind :
         {GpuMemoryKind::kIpc, GpuMemoryKind::kVmm, GpuMemoryKind::kPool}) {
      CAPTURE(static_cast<int>(kind));
      DeviceHost daemon;
      RankZero zero(daemon);
      CHECK(zero.BoundRanks() == 0b1);
      OtherRank one(0);
      OtherRank seven(1);  // on another device
      REQUIRE(one.Join(zero, 1) == SPECD_OK);
      REQUIRE(seven.Join(zero, 7) == SPECD_OK);
      const uint64_t memory[] = {one.Allocate(kind), seven.Allocate(kind)};
      zero.Round(0);
      CHECK(one.Ids(memory[0]) == std::vector<int32_t>(kDeviceRankSlots, kUntouched));
      REQUIRE(one.Bind(memory[0]) == SPECD_OK);
      // Not a round number, and fewer bytes than a word from the allocation's start.
      REQUIRE(seven.Bind(memory[1] + 4) == SPECD_OK);
      CHECK(zero.BoundRanks() == 0b10000011);
      CHECK(daemon.platform.num_imports() == 3);
      for (uint32_t round = 0; round < 2 * ScriptEngine::kRows; ++round) {
        zero.Round(round);
        CHECK(one.Ids(memory[0]) == OnlyAt(zero.slot, LastTokenOf(round)));
        CHECK(seven.Ids(memory[1] + 4) == OnlyAt(zero.slot, LastTokenOf(round)));
      }
      CHECK_FALSE(daemon.gpu.copied_to_other_device.empty());
      // After a new binding the old memory is left alone and free.
      const uint64_t moved = one.Allocate(kind);
      REQUIRE(one.Bind(moved) == SPECD_OK);
      CHECK(daemon.platform.num_imports() == 3);
      CHECK(one.peer.Call({.op = PeerOp::kFree, .address = memory[0]}).code == kGpuOk);
      zero.Round(5);
      CHECK(one.Ids(moved) == OnlyAt(zero.slot, LastTokenOf(5)));
      // A rank that leaves is no longer written to, and may free at once.
      CHECK(one.Leave() == SPECD_OK);
      CHECK(daemon.platform.num_imports() == 2);
      CHECK(zero.BoundRanks() == 0b10000001);
      zero.Round(6);
      CHECK(one.Ids(moved) == OnlyAt(zero.slot, LastTokenOf(5)));
      CHECK(seven.Ids(memory[1] + 4) == OnlyAt(zero.slot, LastTokenOf(6)));
      CHECK(one.peer.Call({.op = PeerOp::kFree, .address = moved}).code == kGpuOk);
      CHECK(one.CountViolations() == 0);
      CHECK(seven.CountViolations() == 0);
      CHECK(daemon.platform.num_violations() == 0);
    }
  }

  TEST_CASE("ranks: one that is killed while rounds run is written no more, and may come again") {
    TwoRanks ranks(GpuMemoryKind::kVmm, GpuMemoryKind::kIpc);
    RankZero& zero = ranks.zero;
    Witness witness(*ranks.one, ranks.address);
    OtherRank early;
    CHECK(early.Join(zero, 1) == SPECD_ERROR_STATE);  // the place is taken

    std::atomic<int> num_rounds{0};
    std::atomic<bool> ends{false};
    std::vector<int32_t> got;  // written by the thread
    std::thread rounds([&] {
      // Every round of rank 0 is answered, even if the other ranks end.
      for (uint32_t round = 0; !ends; ++round) {
        const PeerReply answer =
            zero.peer.Call({.op = PeerOp::kRound, .word = round, .value = zero.sequence});
        if (answer.code != SPECD_OK || answer.size_bytes != 4) break;
        got.push_back(answer.tokens[3]);
        ++num_rounds;
      }
      ends = true;
    });
    const auto await_rounds = [&](int more) {
      const int until = num_rounds + more;
      while (!ends && num_rounds < until) std::this_thread::yield();
    };
    await_rounds(3);
    CHECK(witness.Ids()[zero.slot] != kUntouched);
    ranks.one->peer.Kill();
    ranks.AwaitEndOfOne();
    witness.Fill();
    await_rounds(3);
    CHECK_FALSE(ends);
    CHECK(witness.Ids() == std::vector<int32_t>(kDeviceRankSlots, kUntouched));
    ends = true;
    rounds.join();
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i] == LastTokenOf(static_cast<uint32_t>(i)));
    }
    CHECK(ranks.two.Ids(ranks.address_of_two) == OnlyAt(zero.slot, got.back()));
    CHECK(zero.BoundRanks() == 0b101);

    OtherRank again(1);
    REQUIRE(again.Join(zero, 1) == SPECD_OK);
    const uint64_t new_address = again.Allocate(GpuMemoryKind::kPool);
    REQUIRE(again.Bind(new_address) == SPECD_OK);
    zero.Round(7);
    CHECK(again.Ids(new_address) == OnlyAt(zero.slot, LastTokenOf(7)));
    CHECK(ranks.two.Ids(ranks.address_of_two) == OnlyAt(zero.slot, LastTokenOf(7)));
    CHECK(witness.Ids() == std::vector<int32_t>(kDeviceRankSlots, kUntouched));
    CHECK(ranks.daemon.platform.num_violations() == 0);
  }

  TEST_CASE("ranks: rounds on rank 0's stream are in every rank's memory when they are answered") {
    TwoRanks ranks(GpuMemoryKind::kVmm, GpuMemoryKind::kVmm);
    RankZero& zero = ranks.zero;
    const RankOutputs outputs_of_two(ranks.two);
    const size_t imports_without_one = ranks.daemon.platform.num_imports() - 1;
    const RankOutputs outputs_of_one(*ranks.one);
    const auto submit = [&](uint32_t first_row) {
      return zero.peer
          .Call({.op = PeerOp::kSubmitOnStream,
                 .address = zero.address + kNextOffset + zero.slot * sizeof(int32_t),
                 .word = first_row,
                 .value = zero.sequence})
          .code;
    };
    const auto poll = [&](uint32_t first_row) {
      const PeerReply answer = zero.peer.Call({.op = PeerOp::kPoll});
      REQUIRE(answer.code == SPECD_OK);
      CHECK(answer.value == SPECD_STATUS_OK);
      REQUIRE(answer.size_bytes == 4);
      CHECK(answer.tokens[3] == LastTokenOf(first_row));
    };
    for (uint32_t round = 0; round < 6; ++round) {
      REQUIRE(submit(round) == SPECD_OK);
      CHECK(zero.peer.Call({.op = PeerOp::kAwaitStream}).value == round + 1);
      // Checked before the poll: the CUDA stream has continued.
      CHECK(ranks.one->Ids(ranks.address) == OnlyAt(zero.slot, LastTokenOf(round)));
      CHECK(ranks.two.Ids(ranks.address_of_two) == OnlyAt(zero.slot, LastTokenOf(round)));
      outputs_of_one.CheckRound(zero.slot, round);
      outputs_of_two.CheckRound(zero.slot, round);
      poll(round);
    }
    Witness witness(*ranks.one, ranks.address);
    for (uint32_t round = 6; round < 10; ++round) REQUIRE(submit(round) == SPECD_OK);
    ranks.one->peer.Kill();
    for (uint32_t round = 6; round < 10; ++round) poll(round);
    ranks.AwaitEndOfOne(imports_without_one);
    witness.Fill();
    for (uint32_t round = 10; round < 14; ++round) REQUIRE(submit(round) == SPECD_OK);
    for (uint32_t round = 10; round < 14; ++round) poll(round);
    CHECK(witness.Ids() == std::vector<int32_t>(kDeviceRankSlots, kUntouched));
    CHECK(ranks.two.Ids(ranks.address_of_two) == OnlyAt(zero.slot, LastTokenOf(13)));
    outputs_of_two.CheckRound(zero.slot, 13);
    CHECK(ranks.daemon.platform.num_violations() == 0);
  }

  TEST_CASE("ranks: a session that ends gives every rank its memory back") {
    enum class End { kClosed, kKilled, kDaemonStopped };
    for (const End end : {End::kClosed, End::kKilled, End::kDaemonStopped}) {
      CAPTURE(static_cast<int>(end));
      DeviceHost daemon;
      RankZero zero(daemon);
      OtherRank one;
      REQUIRE(one.Join(zero, 1) == SPECD_OK);
      const uint64_t address = one.Allocate(GpuMemoryKind::kIpc);
      REQUIRE(one.Bind(address) == SPECD_OK);
      zero.Round(1);
      CHECK(one.Check() == SPECD_OK);
      if (end == End::kClosed) zero.peer.Call({.op = PeerOp::kCloseEngine});
      if (end == End::kKilled) zero.peer.Kill();
      if (end == End::kDaemonStopped) daemon.host.reset();
      while (one.Check() == SPECD_OK) std::this_thread::yield();
      CHECK(one.Check() == SPECD_ERROR_DISCONNECTED);
      CHECK(daemon.platform.num_imports() == 0);
      CHECK(one.Bind(address) == SPECD_ERROR_DISCONNECTED);
      CHECK(one.Ids(address) == OnlyAt(zero.slot, LastTokenOf(1)));
      CHECK(one.peer.Call({.op = PeerOp::kFree, .address = address}).code == kGpuOk);
      CHECK(one.Leave() == SPECD_OK);
      CHECK(one.CountViolations() == 0);
      CHECK(daemon.platform.num_violations() == 0);
      if (end == End::kDaemonStopped) continue;
      // The daemon serves the next engine, which ranks join with its own token.
      RankZero next(daemon);
      REQUIRE(one.Join(next, 1) == SPECD_OK);
      const uint64_t other = one.Allocate(GpuMemoryKind::kIpc);
      REQUIRE(one.Bind(other) == SPECD_OK);
      next.Round(2);
      CHECK(one.Ids(other) == OnlyAt(next.slot, LastTokenOf(2)));
    }
  }

  TEST_CASE("ranks: memory that cannot be written is refused, and what was bound stays") {
    DeviceHost daemon;
    RankZero zero(daemon);
    OtherRank one;
    REQUIRE(one.Join(zero, 1) == SPECD_OK);
    const uint64_t address = one.Allocate(GpuMemoryKind::kIpc);
    REQUIRE(one.Bind(address) == SPECD_OK);
    const uint64_t other = one.Allocate(GpuMemoryKind::kIpc);
    CHECK(one.Bind(other, kDeviceRankSlots - 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(one.Bind(other, 0) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(one.Bind(other, ~uint64_t{0}) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(one.Bind(other + test::kDeviceBytes - 4, kDeviceRankSlots) == SPECD_ERROR_REGION);
    CHECK(one.Bind(other + 2, kDeviceRankSlots) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(one.Bind(4096, kDeviceRankSlots) == SPECD_ERROR_REGION);
    CHECK(daemon.platform.num_imports() == 2);
    zero.Round(3);
    CHECK(one.Ids(address) == OnlyAt(zero.slot, LastTokenOf(3)));
    CHECK(one.Ids(other) == std::vector<int32_t>(kDeviceRankSlots, kUntouched));

    // A daemon on the CPU.
    const test::EngineHost cpu;
    DeviceEngine engine(cpu.uri);
    OtherRank rank;
    PeerRequest join{.op = PeerOp::kJoin, .word = 1};
    join.handle = engine.peer.Call({.op = PeerOp::kGetGroup}).handle;
    cpu.uri.copy(join.path, sizeof(join.path) - 1);
    REQUIRE(rank.peer.Call(join).code == SPECD_OK);
    CHECK(rank.Bind(rank.Allocate(GpuMemoryKind::kIpc)) == SPECD_ERROR_UNSUPPORTED);
    CHECK(rank.Check() == SPECD_OK);
    CHECK(rank.Leave() == SPECD_OK);
  }
}

}  // namespace
}  // namespace specd
