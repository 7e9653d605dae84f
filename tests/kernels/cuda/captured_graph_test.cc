// CapturedGraph, UploadArena and the fetch over a fake driver. A graph keeps some values, and
// looks at others when it runs. The fake notices mistakes that a device would not forgive.
#include "kernels/cuda/captured_graph.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/upload_arena.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

constexpr size_t kUsualBytes = 512;

std::vector<uint32_t> Numbers(size_t count, uint32_t first) {
  std::vector<uint32_t> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = first + static_cast<uint32_t>(i);
  return numbers;
}

TEST_SUITE("unit") {
  TEST_CASE("a captured fetch brings what is in the arena when it runs, all of it and no more") {
    for (const bool runs_at_once : {false, true}) {
      FakeGpu gpu;
      gpu.runs_at_once = runs_at_once;
      FakeGpuDriver driver(&gpu);
      UploadArena arena;
      REQUIRE(arena.Resize(&driver, 9000).ok());
      CapturedGraph graph;
      REQUIRE(graph.Capture(&driver, [&] { return arena.LaunchFetch(kUsualBytes); }).ok());
      // Fewer words than the launch has threads, as many, and many more; up to the last byte.
      for (const size_t count : {1, 4, 63, 64, 511, 768, 2000, 2251}) {
        CAPTURE(count);
        const std::vector<uint32_t> numbers = Numbers(count, static_cast<uint32_t>(1000 * count));
        arena.Clear();
        const ArenaArray<uint32_t> before = arena.Take<uint32_t>(2251);
        REQUIRE(before.device != nullptr);
        std::memset(before.device, 0x77, 2251 * sizeof(uint32_t));
        arena.Clear();
        const uint32_t* const device = arena.Put(numbers.data(), static_cast<int64_t>(count));
        arena.Seal();
        REQUIRE(graph.Launch().ok());
        REQUIRE(driver.Synchronize().ok());
        CHECK(std::vector<uint32_t>(device, device + count) == numbers);
        const size_t rounded = (count + 3) / 4 * 4;
        for (size_t i = rounded; i < 2251; ++i) REQUIRE(device[i] == 0x77777777);
      }
    }
  }

  TEST_CASE("nothing runs before the graph is launched, and all of it each time") {
    FakeGpu gpu;
    gpu.runs_at_once = true;
    FakeGpuDriver driver(&gpu);
    UploadArena arenas[2];
    ArenaArray<uint32_t> words[2];
    for (int i = 0; i < 2; ++i) {
      REQUIRE(arenas[i].Resize(&driver, 64).ok());
      words[i] = arenas[i].Take<uint32_t>(1);
      *words[i].host = 1;
      *words[i].device = 0;
      arenas[i].Seal();
    }
    CapturedGraph graph;
    REQUIRE(graph
                .Capture(&driver,
                         [&] {
                           CHECK(arenas[0].LaunchFetch(64).ok());
                           return arenas[1].LaunchFetch(64);
                         })
                .ok());
    for (const ArenaArray<uint32_t>& word : words) CHECK(*word.device == 0);
    for (const uint32_t value : {4, 9}) {
      for (const ArenaArray<uint32_t>& word : words) *word.host = value;
      REQUIRE(graph.Launch().ok());
      REQUIRE(driver.Synchronize().ok());
      for (const ArenaArray<uint32_t>& word : words) CHECK(*word.device == value);
    }
  }

  TEST_CASE("what a capture does not allow is an error and spoils it, and the next one is whole") {
    FakeGpu gpu;
    FakeGpuDriver driver(&gpu);
    UploadArena arena;
    REQUIRE(arena.Resize(&driver, 64).ok());
    CapturedGraph other;
    REQUIRE(other.Capture(&driver, [&] { return arena.LaunchFetch(64); }).ok());
    char host[16] = {};
    void* memory = nullptr;
    const std::vector<std::function<GpuResult()>> calls = {
        [&] { return driver.Synchronize(); },
        [&] { return driver.Allocate(64, &memory); },
        [&] { return driver.AllocatePinned(64, &memory); },
        [&] { return driver.ToDevice(host, host, 16); },
        [&] { return driver.ToHost(host, host, 16); },
        [&] { return driver.BeginCapture(); },
        [&] { return other.Launch(); }};
    for (const auto& call : calls) {
      CapturedGraph graph;
      GpuResult called = GpuResult::Ok();
      const GpuResult ended = graph.Capture(&driver, [&] {
        called = call();
        return GpuResult::Ok();
      });
      CHECK(Mentions(called.text(), "not allowed in a capture"));
      CHECK(Mentions(ended.text(), "spoiled"));
    }
    CHECK(gpu.graphs.size() == 1);
    CHECK(other.Launch().ok());
    CHECK(driver.Synchronize().ok());
  }
}

}  // namespace
}  // namespace specd
