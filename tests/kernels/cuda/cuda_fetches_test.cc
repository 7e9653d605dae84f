// Fetches and turns of staged rounds on a real device, launch by launch, against the contract of
// kernels/core/round_launch.h and kernels/warps/staged_turn.h: suite "gpu". Rounds show neither a
// piece too many nor a wrong turn that comes right later.
#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/upload_arena.h"
#include "tests/kernels/cuda/device_or_reason.h"

namespace specd {
namespace {

void Require(const GpuResult& result) { REQUIRE_MESSAGE(result.ok(), result.text()); }

// Bytes that differ from piece to piece and from byte to byte.
std::vector<char> Bytes(size_t count, uint64_t seed) {
  std::vector<char> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<char>((i / kFetchUnit) * 37 + i % kFetchUnit + 11 * seed + i / 4096);
  }
  return bytes;
}

// Memory of the device that a test writes and reads.
class Mirror {
 public:
  Mirror(GpuDriver* driver, const std::vector<char>& bytes) : driver_(driver), bytes_(bytes) {
    Require(memory_.Allocate(driver, bytes.size()));
    Require(driver->ToDevice(memory_.get(), bytes_.data(), bytes_.size()));
    Require(driver->Synchronize());
  }

  char* device() const { return memory_.get(); }
  const std::vector<char>& Read() {
    Require(driver_->ToHost(bytes_.data(), memory_.get(), bytes_.size()));
    Require(driver_->Synchronize());
    return bytes_;
  }

 private:
  GpuDriver* const driver_;
  std::vector<char> bytes_;
  DeviceMemory memory_;
};

constexpr char kUntouched = 0x5C;

struct FetchCase {
  size_t asked;     // pieces
  size_t capacity;  // pieces
  size_t usual_bytes;
};

// Empty if the launch copied the pieces that were asked for, as far as they fit, and no other.
std::string FetchFault(GpuDriver* driver, const FetchCase& fetch) {
  const size_t size_bytes = fetch.capacity * kFetchUnit;
  PinnedMemory source;
  Require(source.Allocate(driver, size_bytes));
  std::vector<char> expected = Bytes(size_bytes, 1);
  const FetchHeader header{.size_bytes = fetch.asked * kFetchUnit, .number = 5};
  std::memcpy(expected.data(), &header, sizeof(header));
  std::memcpy(source.get(), expected.data(), size_bytes);
  Mirror destination(driver, std::vector<char>(size_bytes + kFetchUnit, kUntouched));
  Require(driver->LaunchFetch({.source = source.get(),
                               .destination = destination.device(),
                               .capacity_bytes = size_bytes,
                               .usual_bytes = fetch.usual_bytes}));
  const std::vector<char>& bytes = destination.Read();
  const size_t copied = std::min(fetch.asked, fetch.capacity) * kFetchUnit;
  expected.resize(size_bytes + kFetchUnit);
  std::fill(expected.begin() + static_cast<ptrdiff_t>(copied), expected.end(), kUntouched);
  const auto wrong = std::mismatch(expected.begin(), expected.end(), bytes.begin());
  if (wrong.first == expected.end()) return "";
  return fmt::format("{} of {} pieces, usually {} bytes: byte {} is wrong\n", fetch.asked,
                     fetch.capacity, fetch.usual_bytes, wrong.first - expected.begin());
}

constexpr uint64_t kNumAreas = 3;

// A round as its host stages it: the header, a FusedRound, and bytes.
struct StagedBytes {
  FetchHeader header;
  FusedRound round;
  char rest[1000];
};
constexpr size_t kAreaBytes = (sizeof(StagedBytes) + 255) / 256 * 256;

// Both sides of staged turns. The words that neither side writes keep their poison.
class Turns {
 public:
  Turns(GpuDriver* driver, uint64_t num_done)
      : driver_(driver),
        num_done_(num_done),
        turn_(driver, BytesOf({.num_done = num_done})),
        destination_(driver, std::vector<char>(kAreaBytes, kUntouched)) {
    Require(areas_.Allocate(driver, kNumAreas * kAreaBytes));
    Require(done_.Allocate(driver, (kNumAreas + 1) * sizeof(uint64_t)));
    std::memset(areas_.get(), 0, kNumAreas * kAreaBytes);
    std::fill(done(), done() + kNumAreas + 1, kPoison);
    std::copy(done(), done() + kNumAreas + 1, expected_done_);
  }

  // Stages the next round, whose header names this size.
  void Stage(uint64_t size_bytes) {
    StagedBytes staged = {};
    staged.header = {.size_bytes = size_bytes, .number = ++num_staged_ + num_done_};
    staged.round.num_rows = static_cast<int32_t>(100 + num_staged_);
    staged.round.batch.num_tasks = static_cast<int32_t>(10 + num_staged_);
    const std::vector<char> rest = Bytes(sizeof(staged.rest), num_staged_);
    std::memcpy(staged.rest, rest.data(), rest.size());
    std::memcpy(AreaOf(num_staged_), &staged, sizeof(staged));
  }

  // Runs a turn, and compares all that it leaves with the round that it should have taken, or with
  // none.
  void Run() {
    std::vector<char> expected = destination_.Read();
    const bool has_round = num_run_ < num_staged_;
    const char* const area = AreaOf(num_run_ + 1);
    uint64_t size_bytes = 0;
    if (has_round) {
      FetchHeader header;
      std::memcpy(&header, area, sizeof(header));
      size_bytes = std::min<uint64_t>(header.size_bytes, kAreaBytes);
      std::memcpy(expected.data(), area, size_bytes);
    } else {
      const int32_t none = 0;
      char* const round = expected.data() + offsetof(StagedBytes, round);
      std::memcpy(round + offsetof(FusedRound, num_rows), &none, sizeof(none));
      std::memcpy(round + offsetof(FusedRound, batch) + offsetof(RoundBatch, num_tasks), &none,
                  sizeof(none));
    }
    const StagedPlan plan{.areas = areas_.get(),
                          .area_bytes = kAreaBytes,
                          .num_areas = kNumAreas,
                          .done = done(),
                          .turn = reinterpret_cast<StagedTurn*>(turn_.device()),
                          .destination = destination_.device(),
                          .round = reinterpret_cast<FusedRound*>(destination_.device() +
                                                                 offsetof(StagedBytes, round)),
                          .usual_bytes = 1};
    Require(driver_->LaunchTakeStaged(plan));
    CHECK(destination_.Read() == expected);
    CheckTurn({num_done_ + num_run_, area, size_bytes});
    Require(driver_->LaunchEndStaged(plan));
    if (has_round) {
      ++num_run_;
      expected_done_[(num_done_ + num_run_ - 1) % kNumAreas] = num_done_ + num_run_;
    }
    CheckTurn({num_done_ + num_run_, area, size_bytes});
    CHECK(std::equal(done(), done() + kNumAreas + 1, expected_done_));
  }

  uint64_t num_run() const { return num_run_; }

 private:
  static constexpr uint64_t kPoison = 0xABABABABABABABAB;

  static std::vector<char> BytesOf(const StagedTurn& turn) {
    const auto* const first = reinterpret_cast<const char*>(&turn);
    return {first, first + sizeof(turn)};
  }
  // The n-th round from 1 on.
  char* AreaOf(uint64_t n) const {
    return areas_.get() + (num_done_ + n - 1) % kNumAreas * kAreaBytes;
  }
  uint64_t* done() const { return reinterpret_cast<uint64_t*>(done_.get()); }
  void CheckTurn(const StagedTurn& expected) {
    StagedTurn turn;
    std::memcpy(&turn, turn_.Read().data(), sizeof(turn));
    CHECK(turn.num_done == expected.num_done);
    CHECK(turn.source == expected.source);
    CHECK(turn.size_bytes == expected.size_bytes);
  }

  GpuDriver* const driver_;
  const uint64_t num_done_;  // before the first turn
  uint64_t num_staged_ = 0;
  uint64_t num_run_ = 0;
  uint64_t expected_done_[kNumAreas + 1];
  PinnedMemory areas_;
  PinnedMemory done_;
  Mirror turn_;
  Mirror destination_;
};

TEST_SUITE("gpu") {
  TEST_CASE("CUDA fetches: the pieces that are asked for and no others") {
    if (DeviceOrReason() == nullptr) return;
    const std::unique_ptr<GpuDriver> driver = DriverOfDevice();
    // A launch of one block and one of two have so many threads, which take a piece each in turn.
    for (const size_t num_threads : {256, 512}) {
      const size_t usual_bytes = num_threads * kFetchUnit;
      for (const size_t capacity :
           {size_t{1}, num_threads - 1, num_threads, num_threads + 1, 2 * num_threads,
            3 * num_threads + 5, 5 * num_threads, 6 * num_threads - 1, 9 * num_threads + 3}) {
        for (const size_t asked : {capacity + 7, capacity, capacity - 1, capacity / 2, size_t{0}}) {
          CHECK(FetchFault(driver.get(), {asked, capacity, usual_bytes}) == "");
        }
      }
    }
  }

  TEST_CASE("CUDA turns: what each leaves, with and without a round") {
    if (DeviceOrReason() == nullptr) return;
    const std::unique_ptr<GpuDriver> driver = DriverOfDevice();
    // After 2^32 rounds and more, their number no longer fits into 32 bits.
    for (const uint64_t num_done : {uint64_t{0}, (uint64_t{1} << 32) - 2, uint64_t{5} << 33}) {
      CAPTURE(num_done);
      Turns turns(driver.get(), num_done);
      turns.Run();
      for (uint64_t i = 0; i < 5; ++i) {
        turns.Stage(sizeof(StagedBytes) / kFetchUnit * kFetchUnit - i * kFetchUnit);
        if (i % 2 == 1) turns.Stage(uint64_t{1} << 40);  // more than an area has
        turns.Run();
        turns.Run();
        if (i % 2 == 0) turns.Run();
      }
      CHECK(turns.num_run() == 7);
    }
  }
}

}  // namespace
}  // namespace specd
