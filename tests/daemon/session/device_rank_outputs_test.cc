// Wide slot outputs of ranks in processes of their own, in pretended device memory
// (specd_member_bind_device_tensor). The right ids are the argmax of the rows that rank 0 was
// given.
#include <doctest/doctest.h>

#include <vector>

#include "tests/daemon/session/device_ranks.h"

namespace specd {
namespace {

using test::ArgmaxOf;
using test::DeviceHost;
using test::kRankSlots;
using test::kUntouched;
using test::OnlyAt;
using test::OtherRank;
using test::RankZero;

TEST_SUITE("process") {
  TEST_CASE("ranks: each finds kept tokens and lengths in its own device memory, too") {
    constexpr uint64_t kWidth = ScriptEngine::kMaxDraft + 1;
    for (const GpuMemoryKind kind :
         {GpuMemoryKind::kIpc, GpuMemoryKind::kVmm, GpuMemoryKind::kPool}) {
      CAPTURE(static_cast<int>(kind));
      DeviceHost daemon;
      RankZero zero(daemon);
      OtherRank one(0), seven(1);
      REQUIRE(one.Join(zero, 1) == SPECD_OK);
      REQUIRE(seven.Join(zero, 7) == SPECD_OK);
      uint64_t kept[2], total[2];
      for (int i = 0; i < 2; ++i) {
        OtherRank& rank = i == 0 ? one : seven;
        // Two slot outputs in one allocation, neither at its start.
        kept[i] = rank.Allocate(kind) + 4;
        total[i] = kept[i] + kRankSlots * kWidth * sizeof(int32_t) + 8;
        REQUIRE(rank.BindOutput(SPECD_KEPT_TOKENS, kept[i], kRankSlots * kWidth) == SPECD_OK);
        REQUIRE(rank.BindOutput(SPECD_TOTAL_KEPT, total[i], kRankSlots) == SPECD_OK);
      }
      for (uint32_t round = 0; round < ScriptEngine::kRows; ++round) {
        zero.Round(round);
        std::vector<int32_t> tokens(kRankSlots * kWidth, kUntouched);
        for (uint32_t k = 0; k < kWidth; ++k) tokens[zero.slot * kWidth + k] = ArgmaxOf(round + k);
        const auto length = static_cast<int32_t>((round + 1) * kWidth);
        for (int i = 0; i < 2; ++i) {
          OtherRank& rank = i == 0 ? one : seven;
          CHECK(rank.Ids(kept[i], kRankSlots * kWidth) == tokens);
          CHECK(rank.Ids(total[i]) == OnlyAt(zero.slot, length));
        }
      }
      CHECK(one.Leave() == SPECD_OK);
      zero.Round(0);
      CHECK(one.Ids(total[0])[zero.slot] == ScriptEngine::kRows * kWidth);
      CHECK(one.CountViolations() == 0);
      CHECK(seven.CountViolations() == 0);
      CHECK(daemon.platform.num_violations() == 0);
    }
  }
}

}  // namespace
}  // namespace specd
