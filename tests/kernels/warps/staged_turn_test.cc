// Turns of staged rounds, step by step. At any step of the host, a turn takes the oldest round that
// is complete, or none.
#include "kernels/warps/staged_turn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/host_words.h"

namespace specd {
namespace {

constexpr uint64_t kNumAreas = 3;
constexpr size_t kPayload =
    (sizeof(FetchHeader) + sizeof(FusedRound) + kFetchUnit - 1) / kFetchUnit * kFetchUnit;
constexpr size_t kAreaBytes = kPayload + 8 * kFetchUnit;
static_assert(kPayload % kFetchUnit == 0 && alignof(FusedRound) <= kFetchUnit);

// Memory of both sides. Round n has n rows and n tasks, and bytes of value n follow it.
class Turns {
 public:
  Turns()
      : areas_(kNumAreas * kAreaBytes / sizeof(FetchHeader)),
        device_(kAreaBytes / sizeof(FetchHeader)) {
    plan.areas = reinterpret_cast<const char*>(areas_.data());
    plan.area_bytes = kAreaBytes;
    plan.num_areas = kNumAreas;
    plan.done = done;
    plan.turn = &turn;
    plan.destination = device_.data();
    plan.round = reinterpret_cast<FusedRound*>(device_.data() + 1);
  }

  static size_t SizeOf(uint64_t round) { return kPayload + round * 5 % 8 * kFetchUnit; }
  static FusedRound RoundOf(uint64_t round) {
    FusedRound fused;
    fused.num_rows = static_cast<int32_t>(round);
    fused.batch.num_tasks = static_cast<int32_t>(round);
    return fused;
  }
  FetchHeader* header(uint64_t round) {
    return &areas_[(round - 1) % kNumAreas * (kAreaBytes / sizeof(FetchHeader))];
  }
  void Write(uint64_t round) {
    char* const area = reinterpret_cast<char*>(header(round));
    const FusedRound fused = RoundOf(round);
    std::memcpy(area + sizeof(FetchHeader), &fused, sizeof(fused));
    std::memset(area + kPayload, static_cast<int>(round % 100), SizeOf(round) - kPayload);
  }

  void Fetch() {
    const FetchPlan fetch = FetchOfTurn(plan);
    CHECK(fetch.destination == plan.destination);
    std::memcpy(fetch.destination, fetch.source, fetch.capacity_bytes);
  }
  bool Holds(uint64_t round) const {
    const FusedRound fused = RoundOf(round);
    const char* const payload = static_cast<const char*>(plan.destination) + kPayload;
    return turn.size_bytes == SizeOf(round) && plan.round->num_rows == fused.num_rows &&
           plan.round->batch.num_tasks == fused.batch.num_tasks &&
           std::count(payload, payload + SizeOf(round) - kPayload,
                      static_cast<char>(round % 100)) ==
               static_cast<ptrdiff_t>(SizeOf(round) - kPayload);
  }

  StagedPlan plan;
  StagedTurn turn;
  uint64_t done[kNumAreas] = {};

 private:
  std::vector<FetchHeader> areas_;
  std::vector<FetchHeader> device_;
};

TEST_SUITE("unit") {
  TEST_CASE("turns take every round once and in order, under any schedule of host and device") {
    uint64_t num_idle = 0;
    for (uint64_t seed = 0; seed < 50; ++seed) {
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      Turns turns;
      uint64_t num_published = 0;
      uint64_t num_collected = 0;
      uint64_t num_run = 0;
      int host_step = 0;    // of staging
      int device_step = 0;  // of a turn
      bool is_taken = false;
      // In some schedules the host is faster, in others the device.
      const uint64_t host_share = 1 + seed % 9;
      for (int step = 0; step < 2000; ++step) {
        if (random() % 10 < host_share) {
          const uint64_t round = num_published + 1;
          const uint64_t oldest = num_collected + 1;
          if (num_collected < num_published && turns.done[(oldest - 1) % kNumAreas] == oldest) {
            ++num_collected;
            REQUIRE(num_collected <= num_run);
          }
          if (round - num_collected > kNumAreas) continue;
          if (host_step == 0) turns.Write(round);
          if (host_step == 1) turns.header(round)->size_bytes = Turns::SizeOf(round);
          if (host_step == 2) HostWords().Release(round, &turns.header(round)->number);
          if (host_step == 2) ++num_published;
          host_step = (host_step + 1) % 3;
          continue;
        }
        if (device_step == 0) {
          TakeStaged(HostWords(), turns.plan);
          is_taken = turns.turn.size_bytes != 0;
          REQUIRE(is_taken == (num_run < num_published));
        }
        if (device_step == 1) turns.Fetch();
        if (device_step == 2) {
          REQUIRE((!is_taken || turns.Holds(num_run + 1)));
          REQUIRE((is_taken || turns.plan.round->num_rows == 0));
          REQUIRE((is_taken || turns.plan.round->batch.num_tasks == 0));
          EndStaged(HostWords(), turns.plan);
          (is_taken ? num_run : num_idle) += 1;
          REQUIRE(turns.turn.num_done == num_run);
        }
        device_step = (device_step + 1) % 3;
      }
      CHECK(num_run > 40);
    }
    CHECK(num_idle > 100);
  }

  TEST_CASE("a turn fetches no more than an area holds") {
    Turns turns;
    turns.Write(1);
    *turns.header(1) = {.size_bytes = uint64_t{1} << 40, .number = 1};
    TakeStaged(HostWords(), turns.plan);
    CHECK(FetchOfTurn(turns.plan).capacity_bytes == kAreaBytes);
  }
}

}  // namespace
}  // namespace specd
