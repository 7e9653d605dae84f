// The done word tells the host that a round is over. The tests check that no write of the round
// follows the word, and how the host waits for it.
#include "kernels/cuda/done_word.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/kernels/cuda/device_slots.h"
#include "tests/support/slot_rounds.h"

namespace specd {
namespace {

// Looks at the word after every node of the graphs that run. Once the word says that a round is
// over, no node may write anything. Otherwise the host would read answers too early.
class NodeWatch {
 public:
  explicit NodeWatch(FakeGpu* gpu) : gpu_(gpu) {
    gpu->after_node = [this] { Look(); };
  }

  void BeginRound() {
    REQUIRE(gpu_->done_word != nullptr);
    awaited_ = LookAtWord(const_cast<uint64_t*>(gpu_->done_word)) + 1;
    num_nodes_ = 0;
    is_over_ = false;
  }

  int num_nodes() const { return num_nodes_; }
  bool is_over() const { return is_over_; }

 private:
  using Memory = std::vector<std::vector<uint64_t>>;

  void Look() {
    ++num_nodes_;
    if (is_over_) CHECK(AllMemory() == memory_);
    if (is_over_ || LookAtWord(const_cast<uint64_t*>(gpu_->done_word)) < awaited_) return;
    is_over_ = true;
    memory_ = AllMemory();
  }

  Memory AllMemory() const {
    Memory memory;
    for (const FakeGpu::Blocks* blocks : {&gpu_->allocations, &gpu_->pinned}) {
      for (const auto& [address, block] : *blocks) memory.push_back(*block);
    }
    return memory;
  }

  FakeGpu* gpu_;
  uint64_t awaited_ = 0;
  int num_nodes_ = 0;
  bool is_over_ = false;
  Memory memory_;  // when the word was first there
};

int64_t NumSleeps() {
  rusage usage = {};
  REQUIRE(getrusage(RUSAGE_THREAD, &usage) == 0);
  return usage.ru_nvcsw;
}

TEST_SUITE("unit") {
  TEST_CASE("no node of a round's graph writes anything once the word says that it is over") {
    const RoundCase::Options options{.vocab_size = 300, .batch = 6, .max_draft = 2, .seed = 19};
    for (const bool runs_at_once : {false, true}) {
      FakeGpu gpu;
      gpu.runs_at_once = runs_at_once;
      FakeGpuDriver driver(&gpu);
      DeviceSlots slots(&driver, options, MemorySpace::kDevice);
      CudaBackend backend(std::make_unique<FakeGpuDriver>(&gpu), int64_t{1} << 30);
      REQUIRE(backend
                  .Prepare({.vocab_size = options.vocab_size,
                            .max_batch = options.batch,
                            .max_draft = options.max_draft,
                            .recent_room = SlotMemory::RecentRoom(options)})
                  .ok());
      NodeWatch watch(&gpu);
      const RoundProcessor processor = slots.By(&backend);
      SlotRounds rounds(options);
      SlotMemory memory(options);
      rounds.Next();
      watch.BeginRound();
      processor.run(rounds.round(), rounds.Known());
      CHECK(watch.num_nodes() >= 3);  // the fetch, the round, its end
      CHECK(watch.is_over());
      // And one that is resolved first.
      watch.BeginRound();
      processor.run(rounds.round(), rounds.Open(&memory));
      CHECK(gpu.num_resolves == 1);
      CHECK(watch.num_nodes() >= 4);
      CHECK(watch.is_over());
    }
  }

  TEST_CASE("a long wait leaves the processor to others, and a short one keeps it") {
    FakeGpu gpu;
    FakeGpuDriver driver(&gpu);
    DoneWord done;
    REQUIRE(done.Allocate(&driver).ok());
    constexpr int kLongWait = 200;  // looks at a device that does not get on
    for (const int idle_checks : {0, kLongWait, 0}) {
      CAPTURE(idle_checks);
      REQUIRE(done.LaunchEnd().ok());
      gpu.idle_checks = idle_checks;
      const int64_t before = NumSleeps();
      REQUIRE(done.Await().ok());
      const int64_t num_sleeps = NumSleeps() - before;
      CHECK(gpu.idle_checks == 0);
      if (idle_checks == 0) CHECK(num_sleeps < kLongWait / 10);
      if (idle_checks == kLongWait) CHECK(num_sleeps > kLongWait / 2);
    }
  }

  TEST_CASE("a device that fails after a long wait is seen as soon as one that fails at once") {
    for (const int num_good_checks : {0, 3, 100}) {
      CAPTURE(num_good_checks);
      FakeGpu gpu;
      FakeGpuDriver driver(&gpu);
      DoneWord done;
      REQUIRE(done.Allocate(&driver).ok());
      REQUIRE(done.LaunchEnd().ok());
      gpu.idle_checks = num_good_checks + 1;
      gpu.failing_call = "Check";
      gpu.failing_after = num_good_checks;
      const GpuResult result = done.Await();
      CHECK(result.text() == "fake failure of Check");
    }
  }
}

}  // namespace
}  // namespace specd
