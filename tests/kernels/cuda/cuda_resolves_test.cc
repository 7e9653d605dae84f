// Tasks that leave something open, resolved by a real device alone: suite "gpu". Rounds show what a
// wrong count does to a token, if it does anything.
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <random>
#include <vector>

#include "kernels/cuda/upload_arena.h"
#include "tests/kernels/bodies/resolution.h"
#include "tests/kernels/cuda/device_or_reason.h"

namespace specd {
namespace {

// Memory that host and device reach at the same address.
class PinnedResource final : public std::pmr::memory_resource {
 public:
  explicit PinnedResource(GpuDriver* driver) : driver_(driver) {}

 private:
  void* do_allocate(size_t bytes, size_t) override {
    auto memory = std::make_unique<PinnedMemory>();
    const GpuResult result = memory->Allocate(driver_, bytes);
    REQUIRE_MESSAGE(result.ok(), result.text());
    void* const begin = memory->get();
    blocks_[begin] = std::move(memory);
    return begin;
  }
  void do_deallocate(void* begin, size_t, size_t) override { blocks_.erase(begin); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  GpuDriver* const driver_;
  std::map<void*, std::unique_ptr<PinnedMemory>> blocks_;
};

TEST_SUITE("gpu") {
  TEST_CASE(
      "CUDA resolves: draft tokens, positions and overrides are what counting by hand gives") {
    if (DeviceOrReason() == nullptr) return;
    const std::unique_ptr<GpuDriver> driver = DriverOfDevice();
    PinnedResource memory(driver.get());
    std::mt19937_64 random(35);
    for (ResolutionOptions options :
         {ResolutionOptions(),
          ResolutionOptions{.vocab_size = 200, .max_draft = 64, .recent_room = 40},
          // More than three ids for each lane.
          ResolutionOptions{.vocab_size = 300, .max_draft = 64, .recent_room = 100}}) {
      CAPTURE(options.max_draft);
      options.memory = &memory;
      for (int repeat = 0; repeat < (Quick() ? 12 : 300); ++repeat) {
        CAPTURE(repeat);
        Resolution round(options.num_slots, options);
        std::vector<DrawnTask> drawn;
        for (int32_t i = 0; i < options.num_slots; ++i) {
          drawn.emplace_back(random, static_cast<uint32_t>(i), options);
        }
        for (size_t i = 0; i < drawn.size(); ++i) drawn[i].Give(&round, &round.tasks[i]);
        std::pmr::vector<FusedRound> fused(1, &memory);
        fused[0].batch = round.batch();
        fused[0].progress = round.progress.data();
        fused[0].resolve = round.plan();
        const GpuResult result = driver->LaunchResolve(
            fused.data(), {.num_tasks = options.num_slots, .max_draft = options.max_draft});
        REQUIRE_MESSAGE(result.ok(), result.text());
        const GpuResult ended = driver->Synchronize();
        REQUIRE_MESSAGE(ended.ok(), ended.text());
        for (size_t i = 0; i < drawn.size(); ++i) drawn[i].Check(round.resolved[i]);
      }
    }
  }
}

}  // namespace
}  // namespace specd
