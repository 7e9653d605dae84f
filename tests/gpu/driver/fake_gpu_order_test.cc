// The rules of order that the pretended GPU keeps: CUDA streams, words and events within a process,
// and words between two (<cuda.h> at cuStreamWaitValue, cuEventRecord, cuStreamWaitEvent).
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/support/gpu_peer.h"

namespace specd {
namespace {

// A page of words that the device can reach.
struct Words {
  explicit Words(GpuContext* context) : gpu(context), fd(memfd_create("words", MFD_CLOEXEC)) {
    REQUIRE(ftruncate(fd.get(), 4096) == 0);
    void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(page != MAP_FAILED);
    host = static_cast<uint64_t*>(page);
    REQUIRE(gpu->RegisterHost(host, 4096, &device).ok());
  }
  ~Words() {
    (void)gpu->UnregisterHost(host);
    munmap(host, 4096);
  }
  GpuAddress at(size_t i) const { return device + i * sizeof(uint64_t); }
  uint64_t Load(size_t i) const { return __atomic_load_n(host + i, __ATOMIC_ACQUIRE); }
  void Store(size_t i, uint64_t value) { __atomic_store_n(host + i, value, __ATOMIC_RELEASE); }

  GpuContext* gpu;
  UniqueFd fd;
  uint64_t* host = nullptr;
  GpuAddress device = 0;
};

struct Gpu {
  explicit Gpu(const FakeGpuOptions& options = {}) : gpu(options, 0), words(&gpu) {
    REQUIRE(gpu.CreateStream(&stream).ok());
  }
  GpuResult Wait(GpuStream on, size_t word, uint64_t value, GpuWord width = GpuWord::k64) {
    return gpu.WaitValue(on, words.at(word), width, value);
  }
  GpuResult Write(GpuStream on, size_t word, uint64_t value, GpuWord width = GpuWord::k64) {
    return gpu.WriteValue(on, words.at(word), width, value);
  }
  bool IsIdle(GpuStream which) { return gpu.Query(which).code() != kGpuNotReady; }
  // For what must happen: a test that would wait for ever hangs, and says so by its time limit.
  void Await(size_t word, uint64_t value) {
    while (words.Load(word) != value) std::this_thread::yield();
  }

  FakeGpuContext gpu;
  Words words;
  GpuStream stream;
};

TEST_SUITE("unit") {
  TEST_CASE("fake gpu: a wait holds its stream until any thread stores the value") {
    Gpu own;
    GpuStream other;
    REQUIRE(own.gpu.CreateStream(&other).ok());
    REQUIRE(own.Wait(own.stream, 0, 5).ok());
    REQUIRE(own.Write(own.stream, 1, 7).ok());
    // Another CUDA stream continues meanwhile, and shows that time has passed.
    REQUIRE(own.Write(other, 2, 1).ok());
    REQUIRE(own.gpu.Synchronize(other).ok());
    CHECK(own.words.Load(1) == 0);
    CHECK_FALSE(own.IsIdle(own.stream));
    own.words.Store(0, 4);
    REQUIRE(own.Write(other, 2, 2).ok());
    REQUIRE(own.gpu.Synchronize(other).ok());
    CHECK(own.words.Load(1) == 0);
    own.words.Store(0, 5);
    REQUIRE(own.gpu.Synchronize(own.stream).ok());
    CHECK(own.words.Load(1) == 7);
    CHECK(own.IsIdle(own.stream));
  }

  TEST_CASE("fake gpu: a wait compares as counters that wrap, in the word's width") {
    Gpu own;
    const auto wait = [&](uint64_t word, uint64_t value, GpuWord width) {
      own.words.Store(0, word);
      REQUIRE(own.Wait(own.stream, 0, value, width).ok());
    };
    const auto passes = [&](uint64_t word, uint64_t value, GpuWord width) {
      wait(word, value, width);
      return own.gpu.Synchronize(own.stream).ok();
    };
    const auto holds = [&](uint64_t word, uint64_t value, GpuWord width) {
      wait(word, value, width);
      for (int i = 0; i < 100 && !own.IsIdle(own.stream); ++i) std::this_thread::yield();
      const bool is_held = !own.IsIdle(own.stream);
      own.words.Store(0, value);
      REQUIRE(own.gpu.Synchronize(own.stream).ok());
      return is_held;
    };
    CHECK(passes(5, 5, GpuWord::k64));
    CHECK(passes(6, 5, GpuWord::k64));
    CHECK(holds(4, 5, GpuWord::k64));
    CHECK(passes(2, ~uint64_t{0}, GpuWord::k64));  // 2 is 3 behind 2^64 - 1
    CHECK(holds(~uint64_t{0}, 2, GpuWord::k64));
    CHECK(passes(1, 0xffffffff, GpuWord::k32));  // wraps at 32 bits
    CHECK(holds(1, 0xffffffff, GpuWord::k64));
    CHECK(passes(0xffffffff00000003, 3, GpuWord::k32));  // the upper half is another word's
  }

  TEST_CASE("fake gpu: a 32-bit write leaves its neighbour alone") {
    Gpu own;
    own.words.Store(0, 0x1111111122222222);
    REQUIRE(own.Write(own.stream, 0, 0xabcdef0133333333, GpuWord::k32).ok());
    REQUIRE(own.gpu.Synchronize(own.stream).ok());
    CHECK(own.words.Load(0) == 0x1111111133333333);
  }

  TEST_CASE("fake gpu: words lie in registered memory, at the device's address for it") {
    Gpu own;
    CHECK(own.words.device != reinterpret_cast<uintptr_t>(own.words.host));
    const auto host_address = reinterpret_cast<uintptr_t>(own.words.host);
    CHECK(own.gpu.WaitValue(own.stream, host_address, GpuWord::k64, 1).code() == kGpuInvalidValue);
    CHECK(own.gpu.WriteValue(own.stream, own.words.device + 4096, GpuWord::k64, 1).code() ==
          kGpuInvalidValue);
    CHECK(own.gpu.WriteValue(own.stream, own.words.device + 4, GpuWord::k64, 1).code() ==
          kGpuInvalidValue);
    CHECK(own.gpu.WriteValue(own.stream, own.words.device + 4, GpuWord::k32, 1).ok());
    CHECK(own.gpu.Synchronize(own.stream).ok());
    GpuAddress again = 0;
    CHECK(own.gpu.RegisterHost(own.words.host, 4096, &again).code() ==
          kGpuHostMemoryAlreadyRegistered);
    CHECK(own.gpu.RegisterHost(own.words.host, 100, &again).code() == kGpuInvalidValue);
    CHECK(own.gpu.UnregisterHost(&again).code() == kGpuHostMemoryNotRegistered);

    FakeGpuOptions narrow;
    narrow.devices[0].has_64_bit_words = false;
    Gpu old(narrow);
    CHECK(old.Write(old.stream, 0, 1, GpuWord::k64).code() == kGpuNotSupported);
    CHECK(old.Write(old.stream, 0, 1, GpuWord::k32).ok());
    CHECK(old.gpu.Synchronize(old.stream).ok());
  }

  TEST_CASE("fake gpu: a stream does things in order, whatever the seed") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      FakeGpuOptions options;
      options.seed = seed;
      Gpu own(options);
      for (uint64_t i = 1; i <= 50; ++i) REQUIRE(own.Write(own.stream, 0, i).ok());
      std::vector<uint64_t> copy(1, 0);
      REQUIRE(
          own.gpu.Copy(own.stream, copy.data(), reinterpret_cast<void*>(own.words.at(0)), 8).ok());
      REQUIRE(own.Write(own.stream, 0, 99).ok());
      REQUIRE(own.gpu.Synchronize(own.stream).ok());
      CHECK(copy[0] == 50);
      CHECK(own.words.Load(0) == 99);
    }
  }

  TEST_CASE("fake gpu: with fewer queues than streams a stuck wait holds up others") {
    FakeGpuOptions options;
    options.num_queues = 1;
    Gpu own(options);
    GpuStream other;
    REQUIRE(own.gpu.CreateStream(&other).ok());
    REQUIRE(own.Wait(own.stream, 0, 1).ok());
    REQUIRE(own.Write(other, 1, 1).ok());
    CHECK_FALSE(own.IsIdle(other));
    own.words.Store(0, 1);
    REQUIRE(own.gpu.Synchronize(other).ok());
    CHECK(own.words.Load(1) == 1);
  }

  TEST_CASE("fake gpu: an event that was never recorded is waited for by nobody") {
    Gpu own;
    GpuStream other;
    GpuEvent event;
    REQUIRE(own.gpu.CreateStream(&other).ok());
    REQUIRE(own.gpu.CreateEvent(&event).ok());
    REQUIRE(own.gpu.WaitEvent(other, event).ok());
    REQUIRE(own.gpu.Synchronize(other).ok());
    // A wait includes a record that was called, even if its CUDA stream is held up.
    REQUIRE(own.Wait(own.stream, 0, 1).ok());
    REQUIRE(own.gpu.RecordEvent(event, own.stream).ok());
    REQUIRE(own.gpu.WaitEvent(other, event).ok());
    REQUIRE(own.Write(other, 1, 1).ok());
    // A record that is called after the wait is none of its business.
    REQUIRE(own.Wait(own.stream, 0, 2).ok());
    REQUIRE(own.gpu.RecordEvent(event, own.stream).ok());
    CHECK_FALSE(own.IsIdle(other));
    own.words.Store(0, 1);
    REQUIRE(own.gpu.Synchronize(other).ok());
    CHECK(own.words.Load(1) == 1);
    CHECK_FALSE(own.IsIdle(own.stream));
    own.words.Store(0, 2);
    REQUIRE(own.gpu.Synchronize(own.stream).ok());
  }

  TEST_CASE("fake gpu: of two functions that wait, only those that an event orders come through") {
    // Says that it has begun and waits for its answer. A daemon answers the first one first.
    struct Round {
      uint64_t* begun;
      uint64_t* answered;
    };
    const auto hold = [](void* argument) {
      const Round& round = *static_cast<const Round*>(argument);
      __atomic_store_n(round.begun, 1, __ATOMIC_RELEASE);
      while (__atomic_load_n(round.answered, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
    };
    for (const bool is_ordered : {false, true}) {
      CAPTURE(is_ordered);
      Gpu own;
      GpuStream other;
      GpuEvent turn;
      REQUIRE(own.gpu.CreateStream(&other).ok());
      REQUIRE(own.gpu.CreateEvent(&turn).ok());
      Round first = {own.words.host + 1, own.words.host + 2};
      Round second = {own.words.host + 3, own.words.host + 4};
      REQUIRE(own.Wait(own.stream, 0, 1).ok());
      REQUIRE(own.gpu.LaunchHostFunction(own.stream, hold, &first).ok());
      REQUIRE(own.gpu.RecordEvent(turn, own.stream).ok());
      if (is_ordered) REQUIRE(own.gpu.WaitEvent(other, turn).ok());
      REQUIRE(own.gpu.LaunchHostFunction(other, hold, &second).ok());
      while (!own.gpu.IsHeld(other)) std::this_thread::yield();
      if (!is_ordered) own.Await(3, 1);
      own.words.Store(0, 1);
      if (!is_ordered) {
        // The first one is next, and cannot begin while the second one waits for what comes later.
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();
        CHECK(own.words.Load(1) == 0);
        own.words.Store(4, 1);  // a release by timeout
      }
      own.Await(1, 1);
      CHECK(own.words.Load(3) == (is_ordered ? 0 : 1));
      own.words.Store(2, 1);
      own.words.Store(4, 1);
      REQUIRE(own.gpu.Synchronize(own.stream).ok());
      REQUIRE(own.gpu.Synchronize(other).ok());
      CHECK(own.words.Load(3) == 1);
      CHECK(own.gpu.DestroyEvent(turn).ok());
      CHECK(own.gpu.violations().empty());
    }
  }

  TEST_CASE("fake gpu: a function of the host that calls the driver is reported") {
    Gpu own;
    const auto check = [](void* gpu) { (void)static_cast<FakeGpuContext*>(gpu)->Check(); };
    REQUIRE(own.gpu.LaunchHostFunction(own.stream, check, &own.gpu).ok());
    REQUIRE(own.gpu.Synchronize(own.stream).ok());
    CHECK(own.gpu.violations().size() == 1);
    CHECK(own.gpu.Check().ok());
  }

  TEST_CASE("fake gpu: copies stay inside device memory") {
    Gpu own;
    GpuAddress address = 0;
    REQUIRE(own.gpu.Allocate(4096, &address).ok());
    char bytes[64] = {};
    CHECK(own.gpu.Copy(own.stream, reinterpret_cast<void*>(address + 4032), bytes, 64).ok());
    CHECK(own.gpu.Synchronize(own.stream).ok());
    CHECK(own.gpu.Copy(own.stream, reinterpret_cast<void*>(address + 4033), bytes, 64).code() ==
          kGpuInvalidValue);
    CHECK(own.gpu.Copy(own.stream, bytes, reinterpret_cast<void*>(address + 4033), 64).code() ==
          kGpuInvalidValue);
  }
}

TEST_SUITE("process") {
  TEST_CASE("fake gpu: two processes hand over through words, and a store releases either") {
    Gpu own;
    GpuPeer peer;
    REQUIRE(peer.Call({.op = PeerOp::kWords}, own.words.fd.get()).code == kGpuOk);
    // ready = word 0, done = word 1, as an engine and a daemon use them for three rounds.
    for (uint64_t round = 1; round <= 3; ++round) {
      REQUIRE(own.Wait(own.stream, 0, round).ok());
      REQUIRE(own.Write(own.stream, 1, round).ok());
      REQUIRE(peer.Call({.op = PeerOp::kWriteValue, .word = 0, .value = round}).code == kGpuOk);
      REQUIRE(peer.Call({.op = PeerOp::kWaitValue, .word = 1, .value = round}).code == kGpuOk);
      own.Await(1, round);
      while (peer.Call({.op = PeerOp::kQuery}).code == kGpuNotReady) std::this_thread::yield();
    }
    // The peer dies while our CUDA stream waits for it. A plain store releases the CUDA stream.
    REQUIRE(own.Wait(own.stream, 0, 4).ok());
    peer.Kill();
    CHECK_FALSE(own.IsIdle(own.stream));
    own.words.Store(0, ~uint64_t{0} >> 1);
    CHECK(own.gpu.Synchronize(own.stream).ok());
  }

  TEST_CASE("fake gpu: the other process releases a stuck stream by a plain store") {
    Gpu own;
    GpuPeer peer;
    REQUIRE(peer.Call({.op = PeerOp::kWords}, own.words.fd.get()).code == kGpuOk);
    REQUIRE(peer.Call({.op = PeerOp::kWaitValue, .word = 3, .value = 9}).code == kGpuOk);
    CHECK(peer.Call({.op = PeerOp::kQuery}).code == kGpuNotReady);
    own.words.Store(3, 9);
    while (peer.Call({.op = PeerOp::kQuery}).code == kGpuNotReady) std::this_thread::yield();
    REQUIRE(own.Wait(own.stream, 4, 2).ok());
    REQUIRE(peer.Call({.op = PeerOp::kStore, .word = 4, .value = 2}).code == kGpuOk);
    CHECK(own.gpu.Synchronize(own.stream).ok());
  }
}

}  // namespace
}  // namespace specd
