// Wide slot outputs of ranks in processes of their own, in pretended device memory
// (specd_member_bind_device_tensor). The right ids are the argmax of the rows that rank 0 was
// given.
#include <doctest/doctest.h>

#include "tests/daemon/session/device_ranks.h"

namespace specd {
namespace {

using test::DeviceHost;
using test::OtherRank;
using test::RankOutputs;
using test::RankZero;

TEST_SUITE("process") {
  TEST_CASE("ranks: each finds kept tokens and lengths in its own device memory, too") {
    for (const GpuMemoryKind kind :
         {GpuMemoryKind::kIpc, GpuMemoryKind::kVmm, GpuMemoryKind::kPool}) {
      CAPTURE(static_cast<int>(kind));
      DeviceHost daemon;
      RankZero zero(daemon);
      OtherRank one(0), seven(1);
      REQUIRE(one.Join(zero, 1) == SPECD_OK);
      REQUIRE(seven.Join(zero, 7) == SPECD_OK);
      const RankOutputs outputs[] = {RankOutputs(one, kind), RankOutputs(seven, kind)};
      for (uint32_t round = 0; round < ScriptEngine::kRows; ++round) {
        zero.Round(round);
        for (const RankOutputs& bound : outputs) bound.CheckRound(zero.slot, round);
      }
      CHECK(one.Leave() == SPECD_OK);
      zero.Round(0);
      CHECK(outputs[0].Length(zero.slot) == ScriptEngine::kRows * RankOutputs::kWidth);
      CHECK(one.CountViolations() == 0);
      CHECK(seven.CountViolations() == 0);
      CHECK(daemon.platform.num_violations() == 0);
    }
  }
}

}  // namespace
}  // namespace specd
